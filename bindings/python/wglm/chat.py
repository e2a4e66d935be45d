"""A conversation."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import _core
from ._core import Message
from .calls import awaited, blocking
from .constraints import is_pydantic, schema_text
from .errors import InvalidInput, translated
from .events import ToolCall
from .functions import Function, function
from .model import Model
from .options import reply_options
from .reply import Reply

if TYPE_CHECKING:
    from typing import Unpack

    from .options import ReplyKeywords

T = TypeVar("T")
AnyFunction = Function | Callable[..., Any]


class Chat:
    """A conversation with a model.

        chat = wglm.Chat(model, system="Answer in one sentence.", temperature=0)
        print(chat.send("What is seven plus five?").result())

    While a reply is being generated, everything except `messages` raises `Busy`: take the reply's last event, or close
    it first.
    """

    def __init__(
        self,
        model: Model,
        *,
        system: str | None = None,
        context: int | None = None,
        thinking: bool | None = None,
        functions: Sequence[AnyFunction] = (),
        drop_oldest: bool = False,
        **options: Unpack[ReplyKeywords],
    ) -> None:
        """Creates an empty conversation.

        ``system`` is the system prompt. ``context`` is the context in tokens, the model's by default. ``thinking`` says
        whether the model thinks before it answers. With ``drop_oldest`` a conversation that outgrows its context loses
        its oldest turns; otherwise the reply raises `ContextFull`.
        """
        with translated():
            self._core: _core.Chat | None = _core.Chat(model.core, context)
        self._functions: dict[str, Function] = {}
        if system is not None:
            self.push("system", system)
        if thinking is not None:
            self.set_thinking(thinking)
        if functions:
            self.set_functions(functions)
        if drop_oldest:
            self.set_drop_oldest(True)
        if options:
            self.set_options(**options)

    @property
    def core(self) -> _core.Chat:
        """The object of the generated layer."""
        if self._core is None:
            raise InvalidInput("the conversation is closed")
        return self._core

    def send(self, text: str) -> Reply:
        """Appends a user message, and returns the reply."""
        return Reply(self.core.send(text))

    def reply(self) -> Reply:
        """The reply to the messages as they are: after results of functions, or after `truncate` for another one."""
        return Reply(self.core.reply())

    def resume(self) -> Reply:
        """The rest of a reply that was cut off. Both parts become one message."""
        return Reply(self.core.resume())

    def prefill(self, text: str) -> Reply:
        """The reply to the messages, with a given beginning."""
        return Reply(self.core.prefill(text))

    @overload
    def ask(self, text: str, schema: type[T]) -> T: ...
    @overload
    def ask(self, text: str, schema: Mapping[str, Any] | str) -> Any: ...
    def ask(self, text: str, schema: Any) -> Any:
        """Appends a user message, and returns the answer as a value that is valid against a schema.

        For a pydantic model the value is one of its instances; for a JSON schema, a dictionary or JSON, it is what
        `json.loads` makes of the answer. Raises `Unfinished` if the reply ends before the value is complete.
        """
        with translated():
            asking = self.core.ask(text, _ask_schema(schema))
        return _value(blocking(asking.wait, asking.stop), schema)

    @overload
    async def ask_async(self, text: str, schema: type[T]) -> T: ...
    @overload
    async def ask_async(self, text: str, schema: Mapping[str, Any] | str) -> Any: ...
    async def ask_async(self, text: str, schema: Any) -> Any:
        """Like `ask`, as a coroutine."""
        with translated():
            asking = self.core.ask(text, _ask_schema(schema))
        return _value(await awaited(asking.wait, asking.stop), schema)

    @overload
    def resume_ask(self, schema: type[T]) -> T: ...
    @overload
    def resume_ask(self, schema: Mapping[str, Any] | str) -> Any: ...
    def resume_ask(self, schema: Any) -> Any:
        """The value of an answer that `ask` left unfinished: the rest of it is generated."""
        with translated():
            asking = self.core.resume_ask(_ask_schema(schema))
        return _value(blocking(asking.wait, asking.stop), schema)

    @overload
    async def resume_ask_async(self, schema: type[T]) -> T: ...
    @overload
    async def resume_ask_async(self, schema: Mapping[str, Any] | str) -> Any: ...
    async def resume_ask_async(self, schema: Any) -> Any:
        """Like `resume_ask`, as a coroutine."""
        with translated():
            asking = self.core.resume_ask(_ask_schema(schema))
        return _value(await awaited(asking.wait, asking.stop), schema)

    def run(self, text: str, rounds: int = 8) -> str:
        """Appends a user message, runs the functions that the model calls, and returns its answer.

        An exception of a function is reported to the model as the call's result. After ``rounds`` replies with calls
        the model gets no more.
        """
        reply = self.send(text)
        for _ in range(rounds):
            calls = [event for event in _all(reply) if isinstance(event, ToolCall)]
            if not calls:
                break
            for call in calls:
                self.push_result(call, self._called(call))
            reply = self.reply()
        return reply.result() if reply.stats is None else reply.text

    def _called(self, call: ToolCall) -> str:
        called = self._functions.get(call.name)
        if called is None:
            return f"error: there is no function named {call.name}"
        try:
            return called.result(call.arguments)
        except Exception as error:
            return f"error: {error}"

    @property
    def messages(self) -> list[Message]:
        """The messages so far. While a reply is being generated, they do not contain it."""
        return self.core.messages()

    @messages.setter
    def messages(self, messages: Sequence[Message | Mapping[str, Any]]) -> None:
        several = [message if isinstance(message, Message) else Message(**message) for message in messages]
        with translated():
            self.core.set_messages(several)

    def push(self, role: str, content: str) -> None:
        """Appends a message without asking for a reply."""
        with translated():
            self.core.push(Message(role=role, content=content))

    def push_result(self, call: ToolCall, result: str) -> None:
        """Appends the result of a function that the model has called. `reply` then goes on."""
        with translated():
            self.core.push(Message(role="tool", content=result, tool_call_id=call.id))

    def truncate(self, length: int) -> None:
        """Removes all messages after the first ``length``."""
        with translated():
            self.core.truncate(length)

    def remove(self, start: int, length: int = 1) -> list[Message]:
        """Removes ``length`` messages from ``start`` on, and returns them."""
        with translated():
            return self.core.remove(start, length)

    def unanswered(self) -> list[Message]:
        """The messages at the end that have no answer, because a reply ended before its first token."""
        with translated():
            return self.core.unanswered()

    def set_options(self, **options: Unpack[ReplyKeywords]) -> None:
        """Sets how the next replies are generated. What is not given is as the model's file recommends."""
        with translated():
            self.core.set_options(reply_options(options))

    def set_functions(self, functions: Sequence[AnyFunction]) -> None:
        """Sets the functions that the model may call: each a `Function`, or a Python function with type hints."""
        known = [one if isinstance(one, Function) else function(one) for one in functions]
        with translated():
            self.core.set_functions([one.described() for one in known])
        self._functions = {one.name: one for one in known}

    def set_thinking(self, thinking: bool | None) -> None:
        """Sets whether the model thinks before it answers; None leaves this to the model's template."""
        with translated():
            self.core.set_thinking(thinking)

    def set_drop_oldest(self, drop: bool, reserve: int | None = None) -> None:
        """Sets whether a conversation that outgrows its context loses its oldest turns.

        ``reserve`` tokens of the context are then kept free for the reply, a quarter of it by default.
        """
        overflow: Any = _core.Overflow.DROP_OLDEST(reserve) if drop else _core.Overflow.REFUSE()
        with translated():
            self.core.set_overflow(overflow)

    def set_template_variables(self, **variables: Any) -> None:
        """Sets further variables for the chat template, such as ``clear_thinking=False``."""
        with translated():
            self.core.set_template_variables(json.dumps(variables))

    def fit(self, reserve: int) -> list[Message]:
        """Drops the oldest turns until ``reserve`` tokens of the context are free, and returns their messages."""
        with translated():
            return self.core.fit(reserve)

    @property
    def prompt_tokens(self) -> int:
        """The tokens of the context that the next prompt would take."""
        with translated():
            return self.core.prompt_tokens()

    @property
    def context(self) -> int:
        """The context in tokens."""
        with translated():
            return self.core.context()

    def save(self) -> str:
        """The conversation as JSON: messages, functions, template variables and options."""
        with translated():
            return self.core.save()

    def restore(self, saved: str) -> None:
        """Replaces the conversation by one that `save` returned.

        It describes its functions to the model, but does not contain their code: for `run`, pass them to the `Chat`.
        """
        with translated():
            self.core.restore(saved)

    def save_snapshot(self, path: str | os.PathLike[str]) -> None:
        """Writes the cache to a file, so that the conversation need not be computed again when it is continued."""
        cancel, core = _core.Cancel(), self.core
        blocking(lambda: core.save_snapshot(os.fspath(path), cancel), cancel.cancel)

    def load_snapshot(self, path: str | os.PathLike[str]) -> None:
        """Reads the cache from a file. After an error the conversation continues without it."""
        cancel, core = _core.Cancel(), self.core
        blocking(lambda: core.load_snapshot(os.fspath(path), cancel), cancel.cancel)

    def move_to(self, model: Model) -> None:
        """Moves the conversation to the same model on another device, after `DeviceLost`."""
        with translated():
            self.core.move_to(model.core)

    def close(self) -> None:
        """Frees the cache, once no reply uses it."""
        self._core = None

    def __enter__(self) -> Chat:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _all(reply: Reply) -> list[Any]:
    with reply:
        return list(reply)


def _ask_schema(schema: Any) -> str:
    if isinstance(schema, type) and not is_pydantic(schema):
        raise TypeError(f"{schema.__name__} is not a pydantic model; pass one, or a JSON schema")
    return schema_text(schema)


def _value(text: str, schema: Any) -> Any:
    return schema.model_validate_json(text) if is_pydantic(schema) else json.loads(text)
