"""Functions that receive progress, as the core calls them."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from . import _core

P = TypeVar("P")


class _Listener(Generic[P]):
    """Passes progress on to a function. If the function raises, the call is cancelled, and the exception is raised at
    the end of the ``with`` block around the call."""

    def __init__(self, receive: Callable[[P], None] | None, cancel: _core.Cancel) -> None:
        self._receive = receive
        self._cancel = cancel
        self._raised: BaseException | None = None

    def on_progress(self, progress: P) -> None:
        if self._receive is None or self._raised is not None:
            return
        try:
            self._receive(progress)
        except BaseException as error:
            self._raised = error
            self._cancel.cancel()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._raised is not None:
            raise self._raised


class LoadListener(_Listener[_core.LoadProgress], _core.LoadListener):
    """Receives the progress of a load."""


class PullListener(_Listener[_core.PullProgress], _core.PullListener):
    """Receives the progress of a download."""


class TuneListener(_Listener[_core.TuneProgress], _core.TuneListener):
    """Receives the progress of a tuning."""
