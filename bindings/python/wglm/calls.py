"""Blocking calls that Ctrl-C or the cancellation of a task can stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import TypeVar

from .errors import translated

T = TypeVar("T")


def _begin(call: Callable[[], T]) -> Future[T]:
    """Runs a call on a thread of its own, where Python's signals cannot reach it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            with translated():
                result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="wglm call", daemon=True).start()
    return future


def blocking(call: Callable[[], T], stop: Callable[[], None]) -> T:
    """The result of a call. An exception that arrives while it runs, such as ``KeyboardInterrupt``, stops the call."""
    future = _begin(call)
    try:
        while True:
            try:
                return future.result(0.2)  # a wait without a limit cannot be interrupted on Windows
            except NotYet:
                if future.done():
                    return future.result()
    except BaseException:
        if not future.done():
            stop()
            future.exception()  # the call ends before anything that it uses is freed
        raise


async def awaited(call: Callable[[], T], stop: Callable[[], None]) -> T:
    """The result of a call, without blocking the event loop. A cancelled task stops the call."""
    future = asyncio.wrap_future(_begin(call))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop()
        try:
            await future
        except Exception:
            pass  # what the call makes of its end does not matter any more
        raise
