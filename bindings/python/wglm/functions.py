"""Functions that the model may call."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from . import _core
from .constraints import is_pydantic, schema_text


@dataclass(frozen=True)
class Function:
    """A function that the model may call. `Chat.run` calls ``run`` with the arguments by name."""

    name: str
    description: str
    parameters: Any = None
    """The JSON schema of the arguments: a dictionary, JSON, or a pydantic model, of which ``run`` gets a value."""
    run: Callable[..., Any] | None = None
    strict: bool = False
    """Whether calls have only the arguments that the schema names."""

    def described(self) -> _core.Function:
        """The description for the core."""
        parameters = None if self.parameters is None else schema_text(self.parameters)
        return _core.Function(
            name=self.name, description=self.description, parameters=parameters, strict=self.strict
        )

    def result(self, arguments: dict[str, Any]) -> str:
        """Runs the function, and returns its result as text for the model."""
        if self.run is None:
            raise TypeError(f"the function {self.name} has nothing to run: Chat.run needs `run`")
        if is_pydantic(self.parameters):
            result = self.run(self.parameters.model_validate(arguments))
        else:
            result = self.run(**arguments)
        return result if isinstance(result, str) else json.dumps(result, default=str)


_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


def function(run: Callable[..., Any]) -> Function:
    """Makes a `Function` of a Python function: a decorator.

    The description is the docstring, the schema comes from the type hints: ``str``, ``int``, ``float``, ``bool``,
    ``list`` and ``dict``. Write a `Function` for other types.
    """
    hints, properties, required = get_type_hints(run), {}, []
    for name, parameter in inspect.signature(run).parameters.items():
        hint = hints.get(name)
        kind = _TYPES.get(getattr(hint, "__origin__", hint)) if hint is not None else None
        if kind is None:
            known = ", ".join(known.__name__ for known in _TYPES)
            raise TypeError(f"{name} of {run.__name__} has the type {hint}; expected one of {known}")
        properties[name] = {"type": kind}
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
    parameters = {"type": "object", "properties": properties, "required": required}
    return Function(run.__name__, inspect.getdoc(run) or "", parameters if properties else None, run, strict=True)
