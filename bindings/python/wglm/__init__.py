"""Runs GLM-4.7-Flash and models of its family from a GGUF file on the GPU.

    import wglm

    with wglm.Model.load("GLM-4.7-Flash-Q4_0.gguf") as model:
        chat = wglm.Chat(model)
        for text in chat.send("Tell me a story about an owl.").texts():
            print(text, end="", flush=True)

The calls that load, download, answer and embed exist twice: one that blocks, and a coroutine whose name ends in
``_async``. A reply can be iterated with ``for`` and with ``async for``. Ctrl-C, or cancelling the task, stops what is
being computed.
"""

from ._core import CacheType, LoadStage, Stop
from .chat import Chat
from .constraints import Constraint, JsonObject, JsonSchema, Lark, Regex
from .errors import (
    AccessDenied,
    Busy,
    Cancelled,
    ContextFull,
    DeviceLost,
    DriverError,
    InternalError,
    InvalidFile,
    InvalidInput,
    InvalidSnapshot,
    IoError,
    NetworkError,
    NoDevice,
    NotFound,
    OutOfMemory,
    Unfinished,
    Unsupported,
    WglmError,
)
from .events import (
    Done,
    Dropped,
    Event,
    Prompt,
    Text,
    Thinking,
    Token,
    ToolCall,
    ToolCallFailed,
    ToolCallPiece,
    ToolCallStart,
)
from .functions import Function, function
from .library import adapters, estimate, find_model, local_models, pull, pull_async, version
from .model import Model
from .records import Adapter, Estimate, LoadProgress, LocalModel, Logprob, Message
from .records import PullProgress, Stats, TokenLogprobs, TuneProgress
from .reply import Reply

__version__ = version()

__all__ = [
    "AccessDenied",
    "Adapter",
    "Busy",
    "CacheType",
    "Cancelled",
    "Chat",
    "Constraint",
    "ContextFull",
    "DeviceLost",
    "Done",
    "DriverError",
    "Dropped",
    "Estimate",
    "Event",
    "Function",
    "InternalError",
    "InvalidFile",
    "InvalidInput",
    "InvalidSnapshot",
    "IoError",
    "JsonObject",
    "JsonSchema",
    "Lark",
    "LoadProgress",
    "LoadStage",
    "LocalModel",
    "Logprob",
    "Message",
    "Model",
    "NetworkError",
    "NoDevice",
    "NotFound",
    "OutOfMemory",
    "Prompt",
    "PullProgress",
    "Regex",
    "Reply",
    "Stats",
    "Stop",
    "Text",
    "Thinking",
    "Token",
    "TokenLogprobs",
    "ToolCall",
    "ToolCallFailed",
    "ToolCallPiece",
    "ToolCallStart",
    "TuneProgress",
    "Unfinished",
    "Unsupported",
    "WglmError",
    "adapters",
    "estimate",
    "find_model",
    "function",
    "local_models",
    "pull",
    "pull_async",
    "version",
]
