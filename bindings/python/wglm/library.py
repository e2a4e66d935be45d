"""Adapters, the models on this machine, and downloads."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import _core
from ._core import Adapter, Estimate, LocalModel, PullProgress
from .calls import awaited, blocking
from .errors import translated
from .listeners import PullListener
from .options import load_options

Progress = Callable[[PullProgress], None]


def version() -> str:
    """The version of wglm."""
    return _core.version()


def adapters() -> list[Adapter]:
    """The GPUs of this machine, and drivers that compute on the CPU."""
    return _core.adapters()


def local_models() -> list[LocalModel]:
    """The models that programs have downloaded to this machine."""
    return _core.local_models()


def find_model(name: str) -> LocalModel:
    """Finds a model on this machine by its name, ignoring case. Raises `NotFound`."""
    with translated():
        return _core.find_model(name)


def estimate(path: str | os.PathLike[str], **options: Any) -> Estimate:
    """Judges a file by its header, without loading anything. Takes the options of `Model.load`."""
    with translated():
        return _core.estimate(os.fspath(path), load_options(options))


def _source(folder: str | os.PathLike[str] | None, token: str | None, revision: str | None) -> _core.PullOptions:
    path = None if folder is None else os.fspath(folder)
    return _core.PullOptions(folder=path, token=token, revision=revision)


def _pull(
    name: str, progress: Progress | None, source: _core.PullOptions, options: dict[str, Any]
) -> tuple[Callable[[], str], Callable[[], None]]:
    cancel = _core.Cancel()
    listener = PullListener(progress, cancel)
    settings = load_options(options)

    def call() -> str:
        with listener:
            return _core.pull(name, settings, source, listener, cancel)

    return call, cancel.cancel


def pull(
    name: str,
    progress: Progress | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    token: str | None = None,
    revision: str | None = None,
    **options: Any,
) -> str:
    """Downloads a model from Hugging Face, and returns its path for `Model.load`.

    ``name`` is ``OWNER/REPO:QUANT``, or ``OWNER/REPO`` for the model of the repository that suits this machine best
    with the given options of `Model.load`. An interrupted download continues where it ended.

    Files are stored in ``folder``, with the layout of Hugging Face's cache, or in that cache. ``token`` is for private
    and gated repositories, ``HF_TOKEN`` by default. ``revision`` is a branch, tag or commit, ``main`` by default.
    """
    return blocking(*_pull(name, progress, _source(folder, token, revision), options))


async def pull_async(
    name: str,
    progress: Progress | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    token: str | None = None,
    revision: str | None = None,
    **options: Any,
) -> str:
    """Like `pull`, as a coroutine."""
    return await awaited(*_pull(name, progress, _source(folder, token, revision), options))
