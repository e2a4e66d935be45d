"""The records that programs receive. UniFFI gives them only ``__str__``, which lists and debuggers do not use."""

from __future__ import annotations

from . import _core
from ._core import Adapter, Estimate, LoadProgress, LocalModel, Logprob, Message
from ._core import PullProgress, Stats, TokenLogprobs, TuneProgress

__all__ = [
    "Adapter",
    "Estimate",
    "LoadProgress",
    "LocalModel",
    "Logprob",
    "Message",
    "PullProgress",
    "Stats",
    "TokenLogprobs",
    "TuneProgress",
]


def _shown(record: object) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in vars(record).items())
    return f"{type(record).__name__}({fields})"


for _record in [*(globals()[name] for name in __all__), _core.ToolCall]:
    setattr(_record, "__repr__", _shown)
