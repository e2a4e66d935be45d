"""The events of a reply."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from . import _core
from ._core import Message, Stats, TokenLogprobs


@dataclass(frozen=True)
class Dropped:
    """The oldest messages of a conversation that outgrew its context were dropped. The first event, if it comes."""

    messages: list[Message]


@dataclass(frozen=True)
class Prompt:
    """How much of the prompt is computed: ``done`` of ``total`` tokens. The first one says what the cache held."""

    done: int
    total: int


@dataclass(frozen=True)
class Thinking:
    """A piece of the model's thinking, made of whole characters."""

    text: str


@dataclass(frozen=True)
class Text:
    """A piece of the answer, made of whole characters."""

    text: str


@dataclass(frozen=True)
class ToolCallStart:
    """The model has begun to call a function."""

    id: str
    name: str


@dataclass(frozen=True)
class ToolCallPiece:
    """A piece of the arguments of the call that has begun. All pieces add up to the JSON of the arguments."""

    json: str


@dataclass(frozen=True)
class ToolCall:
    """A complete call."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ToolCallFailed:
    """The end of a call that is not valid. ``cut`` says whether the reply ended inside it."""

    text: str
    cut: bool


@dataclass(frozen=True)
class Token:
    """A generated token with its alternatives, if ``logprobs`` asks for it."""

    token: TokenLogprobs


@dataclass(frozen=True)
class Done:
    """The end of the reply. Always the last event."""

    stats: Stats


Event = Dropped | Prompt | Thinking | Text | ToolCallStart | ToolCallPiece | ToolCall | ToolCallFailed | Token | Done


def event_of(event: _core.Event) -> Event:
    """The event of the core as one of this module."""
    kinds = _core.Event
    if isinstance(event, kinds.TEXT):
        return Text(event.text)
    if isinstance(event, kinds.THINKING):
        return Thinking(event.text)
    if isinstance(event, kinds.PROMPT):
        return Prompt(event.done, event.total)
    if isinstance(event, kinds.TOOL_CALL_START):
        return ToolCallStart(event.id, event.name)
    if isinstance(event, kinds.TOOL_CALL_PIECE):
        return ToolCallPiece(event.json)
    if isinstance(event, kinds.TOOL_CALL):
        return ToolCall(event.call.id, event.call.name, json.loads(event.call.arguments))
    if isinstance(event, kinds.TOOL_CALL_FAILED):
        return ToolCallFailed(event.text, event.cut)
    if isinstance(event, kinds.TOKEN):
        return Token(event.token)
    if isinstance(event, kinds.DROPPED):
        return Dropped(event.messages)
    if isinstance(event, kinds.DONE):
        return Done(event.stats)
    raise TypeError(f"an event of an unknown kind: {event}")
