"""What an answer has to match."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from . import _core


@dataclass(frozen=True)
class JsonSchema:
    """JSON that is valid against a schema: a dictionary, JSON, or a pydantic model.

    Objects of a pydantic model have only the model's fields, as in `Chat.ask`. Those of another schema may have further
    properties, unless it has ``"additionalProperties": false``.
    """

    schema: Any


@dataclass(frozen=True)
class JsonObject:
    """A JSON object."""


@dataclass(frozen=True)
class Regex:
    """Text that a regular expression matches, in the syntax of Rust's crate regex."""

    expression: str


@dataclass(frozen=True)
class Lark:
    """Text by a grammar in llguidance's variant of Lark's syntax."""

    grammar: str


Constraint = JsonSchema | JsonObject | Regex | Lark


def is_pydantic(schema: Any) -> bool:
    """Whether this is a class of pydantic's."""
    return isinstance(schema, type) and hasattr(schema, "model_json_schema")


def schema_text(schema: Any) -> str:
    """A schema as JSON."""
    if isinstance(schema, str):
        return schema
    return json.dumps(schema.model_json_schema() if is_pydantic(schema) else schema)


def _constraint_schema(schema: Any) -> str:
    """The schema of a constraint as JSON. Without ``closed``, a reply could add properties that the model ignores."""
    if not is_pydantic(schema):
        return schema_text(schema)
    return schema_text(schema.model_json_schema() | {"x-guidance": {"closed": True}})


def constraint_of(constraint: Constraint | None) -> Any:
    """The constraint for the core, whose variants have no common type that checkers know."""
    match constraint:
        case None:
            return None
        case JsonSchema(schema):
            return _core.Constraint.JSON_SCHEMA(_constraint_schema(schema))
        case JsonObject():
            return _core.Constraint.JSON_OBJECT()
        case Regex(expression):
            return _core.Constraint.REGEX(expression)
        case Lark(grammar):
            return _core.Constraint.LARK(grammar)
