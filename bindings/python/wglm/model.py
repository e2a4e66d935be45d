"""A model on the GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _core
from ._core import LoadProgress, TuneProgress
from .calls import awaited, blocking
from .errors import InvalidInput
from .listeners import LoadListener, TuneListener
from .options import load_options

if TYPE_CHECKING:
    from typing import Unpack

    from .options import LoadKeywords

Progress = Callable[[LoadProgress], None]


class Model:
    """A model on the GPU, which any number of conversations share.

    ``load`` and ``demo`` make one. As a context manager, or with ``close``, it is given back before the garbage
    collector runs; its memory is freed with the last conversation that uses it.
    """

    def __init__(self, core: _core.Model) -> None:
        self._core: _core.Model | None = core

    @property
    def core(self) -> _core.Model:
        """The object of the generated layer."""
        if self._core is None:
            raise InvalidInput("the model is closed")
        return self._core

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], progress: Progress | None = None, **options: Unpack[LoadKeywords]
    ) -> Model:
        """Loads a model from a GGUF file, or from the first of several.

        ``progress`` is called at every step, on another thread. An exception that it raises ends the load.
        """
        return cls(blocking(*_loading(_core.Model.load, (os.fspath(path), load_options(options)), progress)))

    @classmethod
    async def load_async(
        cls, path: str | os.PathLike[str], progress: Progress | None = None, **options: Unpack[LoadKeywords]
    ) -> Model:
        """Like `load`, as a coroutine."""
        return cls(await awaited(*_loading(_core.Model.load, (os.fspath(path), load_options(options)), progress)))

    @classmethod
    def demo(cls, progress: Progress | None = None, **options: Unpack[LoadKeywords]) -> Model:
        """Loads the demonstration model, which is part of this package: 6 MB that tell fables and add small numbers."""
        return cls(blocking(*_loading(_core.Model.demo, (load_options(options),), progress)))

    @classmethod
    async def demo_async(cls, progress: Progress | None = None, **options: Unpack[LoadKeywords]) -> Model:
        """Like `demo`, as a coroutine."""
        return cls(await awaited(*_loading(_core.Model.demo, (load_options(options),), progress)))

    def reload(self, progress: Progress | None = None) -> Model:
        """Opens the GPU again after `DeviceLost`, and loads the same file on it. See `Chat.move_to`."""
        return Model(blocking(*_loading(self.core.reload, (), progress)))

    @property
    def name(self) -> str | None:
        """The name that the file gives the model."""
        return self.core.name()

    @property
    def context(self) -> int:
        """The context of conversations in tokens."""
        return self.core.context()

    @property
    def adapter(self) -> str:
        """The name of the GPU."""
        return self.core.adapter()

    @property
    def verdict(self) -> str | None:
        """What the load found out about the kernels on this GPU. Save it, and pass it to later loads."""
        return self.core.verdict()

    def tune(self, seconds: float | None = None, progress: Callable[[TuneProgress], None] | None = None) -> str:
        """Measures which settings are fastest on this GPU, in one to five minutes or the given time.

        Save the result, and pass it to later loads as ``tuning``.
        """
        cancel = _core.Cancel()
        listener = TuneListener(progress, cancel)

        def call() -> str:
            with listener:
                return self.core.tune(seconds, listener, cancel)

        return blocking(call, cancel.cancel)

    def embed(self, texts: str | Sequence[str]) -> list[list[float]]:
        """A vector for each text, which can be compared by the cosine of the angle between them.

        The model was trained to predict text and not to compare it, so models that were trained for that are better.
        """
        return blocking(*self._embedding(texts))

    async def embed_async(self, texts: str | Sequence[str]) -> list[list[float]]:
        """Like `embed`, as a coroutine."""
        return await awaited(*self._embedding(texts))

    def _embedding(self, texts: str | Sequence[str]) -> tuple[Callable[[], list[list[float]]], Callable[[], None]]:
        core, cancel = self.core, _core.Cancel()
        several = [texts] if isinstance(texts, str) else list(texts)
        return lambda: core.embed(several, cancel), cancel.cancel

    def close(self) -> None:
        """Gives the model back. Conversations that use it go on."""
        self._core = None

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return "Model(closed)" if self._core is None else f"Model({self.name!r} on {self.adapter!r})"


def _loading(
    load: Callable[..., _core.Model], arguments: tuple[Any, ...], progress: Progress | None
) -> tuple[Callable[[], _core.Model], Callable[[], None]]:
    cancel = _core.Cancel()
    listener = LoadListener(progress, cancel)

    def call() -> _core.Model:
        with listener:
            return load(*arguments, listener=listener, cancel=cancel)

    return call, cancel.cancel
