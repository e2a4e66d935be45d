"""The options of loads and replies, from keyword arguments."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from . import _core
from .constraints import Constraint, constraint_of
from .errors import InvalidInput


class LoadKeywords(TypedDict, total=False):
    """The keyword arguments of `Model.load`."""

    context: int
    """The context of conversations in tokens; 0 for the context that the model was trained for. By default that or
    8192, whichever is less."""
    cache: Literal["f16", "f32", "q8_0"]
    """The type of the values in the KV cache."""
    adapter: str
    """Use an adapter whose name contains this."""
    memory_limit: int
    """The maximum number of bytes in buffers on the GPU."""
    verdicts: Sequence[str]
    """What `Model.verdict` was after earlier loads. With the right one among them the load is faster."""
    tuning: str
    """What `Model.tune` returned."""
    draft_model: str | os.PathLike[str]
    """A separate file with a multi-token-prediction block."""


class ReplyKeywords(TypedDict, total=False):
    """The keyword arguments of `Chat` that say how replies are generated."""

    max_tokens: int
    """The maximum number of generated tokens; by default as many as the context holds."""
    temperature: float
    """Flattens (above 1) or sharpens (below 1) the distribution. At 0 the most likely token is always taken."""
    top_k: int
    """Keep only this many of the most likely tokens; 0 keeps all."""
    top_p: float
    """Keep the fewest of the most likely tokens that together reach this probability; 1 keeps all."""
    min_p: float
    """Keep tokens whose probability is at least this share of the most likely one's; 0 keeps all."""
    seed: int
    """The seed of the draws; by default a random one every time."""
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    repeat_last_n: int
    """How many of the last tokens the penalties take into account."""
    logit_bias: Mapping[int, float]
    """Added to the logits of tokens; minus infinity bans a token."""
    stop: Sequence[str]
    """The answer ends just before the first of these strings."""
    logprobs: int
    """How many of the most likely tokens each `Token` event lists; by default there are no such events."""
    constraint: Constraint
    """What the answer has to match."""
    calls: str
    """``"auto"``, ``"none"``, ``"required"``, or the name of the one function to call."""
    stop_loops: bool
    """Whether a reply that repeats itself endlessly ends."""


def _known(options: Mapping[str, Any], keywords: type) -> dict[str, Any]:
    unknown = sorted(options.keys() - keywords.__annotations__.keys())
    if unknown:
        known = ", ".join(keywords.__annotations__)
        raise TypeError(f"{unknown[0]} is not an option; the options are {known}")
    return {name: value for name, value in options.items() if value is not None}


def load_options(options: Mapping[str, Any]) -> _core.LoadOptions:
    """The core's options of a load."""
    known = _known(options, LoadKeywords)
    if "cache" in known:
        types = {"f16": _core.CacheType.F16, "f32": _core.CacheType.F32, "q8_0": _core.CacheType.Q80}
        if known["cache"] not in types:
            raise InvalidInput(f"cache is {known['cache']!r}; it can be {', '.join(types)}")
        known["cache"] = types[known["cache"]]
    if "draft_model" in known:
        known["draft_model"] = os.fspath(known["draft_model"])
    if "verdicts" in known:
        known["verdicts"] = list(known["verdicts"])
    return _core.LoadOptions(**known)


def reply_options(options: Mapping[str, Any]) -> _core.Options:
    """The core's options of replies."""
    known = _known(options, ReplyKeywords)
    if isinstance(known.get("stop"), str):
        known["stop"] = [known["stop"]]
    for name in ("stop", "logit_bias"):
        if name in known:
            known[name] = (list if name == "stop" else dict)(known[name])
    if "constraint" in known:
        known["constraint"] = constraint_of(known["constraint"])
    if "calls" in known:
        names = {"auto": _core.Calls.AUTO(), "none": _core.Calls.NONE(), "required": _core.Calls.REQUIRED()}
        calls = known["calls"]
        known["calls"] = names[calls] if calls in names else _core.Calls.FUNCTION(calls)
    return _core.Options(**known)
