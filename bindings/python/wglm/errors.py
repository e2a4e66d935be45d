"""Errors, by what a program can do about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import _core


class WglmError(Exception):
    """A failed call. It has released what it had allocated, and the next call can succeed."""


class Cancelled(WglmError):
    """The call was stopped."""


class OutOfMemory(WglmError):
    """Something does not fit into memory. A shorter context or a smaller file helps, or closing other programs."""


class DeviceLost(WglmError):
    """The GPU was lost. ``Model.reload`` opens it again."""


class NoDevice(WglmError):
    """No GPU has the requested properties, or it cannot do what the kernels need."""


class DriverError(WglmError):
    """The GPU's driver failed, computes wrong results or does not finish. A newer driver or another GPU helps."""

    verdict: str | None = None
    """What the load found out about the kernels, for the next ``Model.load``."""


class InvalidFile(WglmError):
    """A file is damaged, or is not a model."""


class Unsupported(WglmError):
    """A file or a request needs something that wglm does not support."""


class InvalidInput(WglmError, ValueError):
    """An argument, a message, a schema or an option is wrong."""


class InvalidSnapshot(WglmError):
    """A snapshot is damaged or belongs to another model. Continue without it."""


class ContextFull(WglmError):
    """The conversation is longer than the context."""


class Busy(WglmError):
    """What the call needs is in use. Repeat the call later."""


class NetworkError(WglmError):
    """A server or the network failed. The call can be repeated; a download continues."""


class NotFound(WglmError, FileNotFoundError):
    """There is no such file, model or repository."""

    def __str__(self) -> str:
        return str(self.args[0])


class AccessDenied(WglmError):
    """A server refused access. A token helps, or accepting the licence on the repository's page."""


class IoError(WglmError, OSError):
    """The operating system refused to read or write a file."""

    def __str__(self) -> str:
        return str(self.args[0])


class Unfinished(WglmError):
    """A reply ended before its value was complete. ``Chat.resume`` continues it with the same schema."""

    text: str = ""
    """The answer so far: the beginning of the value's JSON."""

    stop: _core.Stop = _core.Stop.CANCELLED
    """Why it ended."""


class InternalError(WglmError):
    """A defect of wglm, which should be reported."""


# By the names that the core gives them.
_CLASSES: dict[str, type[WglmError]] = {
    "Cancelled": Cancelled,
    "OutOfMemory": OutOfMemory,
    "DeviceLost": DeviceLost,
    "NoDevice": NoDevice,
    "Driver": DriverError,
    "InvalidFile": InvalidFile,
    "Unsupported": Unsupported,
    "InvalidInput": InvalidInput,
    "InvalidSnapshot": InvalidSnapshot,
    "ContextFull": ContextFull,
    "Busy": Busy,
    "Network": NetworkError,
    "NotFound": NotFound,
    "AccessDenied": AccessDenied,
    "Io": IoError,
    "Unfinished": Unfinished,
    "Internal": InternalError,
}


@contextmanager
def translated() -> Iterator[None]:
    """Raises this module's errors in place of those of the core."""
    try:
        yield
    except _core.WglmError as error:
        fields = dict(vars(error))
        translation = _CLASSES.get(type(error).__name__, InternalError)(fields.pop("reason", str(error)))
        vars(translation).update(fields)
        raise translation from None
