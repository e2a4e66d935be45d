"""A reply that is being generated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import TracebackType

from . import _core
from ._core import Stats
from .errors import Busy, WglmError, translated
from .events import Done, Event, Text, Thinking, event_of


class Reply:
    """A reply that is being generated: an iterator of events, also for ``async for``.

    Generation begins when the first event is requested. Leaving a ``with`` block, ``close``, Ctrl-C or a cancelled task
    while it waits for an event, and the end of a loop over `texts` end the reply; what was generated of it joins the
    conversation. A ``break`` out of a loop over the events of a reply that is kept in a variable does not.
    """

    def __init__(self, core: _core.Reply) -> None:
        self._core: _core.Reply | None = core
        self.text = ""
        """The answer so far."""
        self.thinking = ""
        """The model's thinking so far."""
        self.stats: Stats | None = None
        """The statistics, once the reply has ended."""

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        core = self._core
        if core is None:
            raise StopIteration
        try:
            with translated():
                event = core.wait_next()
            taken = None if event is None else self._taken(event)
        except WglmError:
            raise  # it has ended, or another call waits for its events
        except BaseException:  # such as KeyboardInterrupt
            self._finish()
            raise
        if taken is None:
            raise StopIteration
        return taken

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if self._core is None:
            raise StopAsyncIteration
        try:
            with translated():
                event = await self._core.next()
        except asyncio.CancelledError:
            self.stop()
            await asyncio.shield(asyncio.to_thread(self._finish))
            raise
        if event is None:
            raise StopAsyncIteration
        return self._taken(event)

    def texts(self) -> Iterator[str]:
        """The pieces of the answer. When the iterator is dropped, as by a ``break``, the reply ends."""
        try:
            for event in self:
                if isinstance(event, Text):
                    yield event.text
        except Busy:
            raise  # another call waits for its events
        except BaseException:
            self.close()
            raise

    def texts_async(self) -> AsyncIterator[str]:
        """The pieces of the answer, for ``async for``. When the iterator is dropped, the reply ends."""
        return _Texts(self)

    def result(self) -> str:
        """Waits for the end of the reply, and returns the whole answer. An exception meanwhile ends the reply."""
        for _ in self.texts():
            pass
        return self.text

    async def result_async(self) -> str:
        """Like `result`, as a coroutine."""
        async for _ in self:
            pass
        return self.text

    def stop(self) -> None:
        """Ends the reply before its next token, from any thread. The last event is then `Done`."""
        core = self._core
        if core is not None:
            core.stop()

    def close(self) -> None:
        """Ends the reply and gives it back. What was generated of it joins the conversation; events are lost."""
        try:
            self._finish()
        finally:
            self._core = None

    def _finish(self) -> None:
        """Ends the reply and waits for its last event, so that what was generated joins the conversation."""
        core = self._core
        if core is not None:
            core.stop()
            try:
                while (event := core.wait_next()) is not None:
                    self._taken(event)
            except _core.WglmError:
                pass  # how a reply fails that nobody waits for does not matter

    def __enter__(self) -> Reply:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _taken(self, core: _core.Event) -> Event:
        event = event_of(core)
        match event:
            case Text(text):
                self.text += text
            case Thinking(text):
                self.thinking += text
            case Done(stats):
                self.stats = stats
        return event


class _Texts(AsyncIterator[str]):
    """The pieces of an answer. This is not a generator, because the event loop closes a generator only after the code
    that follows its loop has begun."""

    def __init__(self, reply: Reply) -> None:
        self._reply: Reply | None = reply

    async def __anext__(self) -> str:
        if self._reply is None:
            raise StopAsyncIteration
        while True:
            try:
                event = await self._reply.__anext__()
            except Busy:
                self._reply = None  # another call waits for its events
                raise
            if isinstance(event, Text):
                return event.text

    def __del__(self) -> None:
        if self._reply is not None:
            self._reply.close()
