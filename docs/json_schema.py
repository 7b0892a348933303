"""JSON Schema (2020-12) of a command's document, from its record."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from distdemo.encoding import (
    NOT_FINITE,
    SCHEMA_VERSION,
    Json,
    defaults_of,
    derived,
    json_names,
)

PLAIN = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    type(None): {"type": "null"},
    complex: {"type": "string"},
    float: {"anyOf": [{"type": "number"}, {"enum": list(NOT_FINITE)}]},
}


def document_schema(record: type, title: str) -> Json:
    """Return the schema of the documents that contain this record."""
    definitions: dict[str, Json] = {}
    content = _record_schema(_encoded_type(record), definitions)
    text = {"type": "string"}
    ranks = {"type": "array", "items": {"type": "integer"}}
    error = {"what": text, "why": text, "hint": text, "ranks": ranks, "consequences": ranks}
    content["properties"] = {
        "schema_version": {"const": SCHEMA_VERSION},
        "command": text,
        "ok": {"type": "boolean"},
        **content["properties"],
        "errors": {"type": "array", "items": {"type": "object", "properties": error}},
    }
    content["required"] = ["schema_version", "command", "ok", "errors"]  # all that a failure has
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **content,
        "$defs": dict(sorted(definitions.items())),
    }


def _schema(kind: Any, definitions: dict[str, Json]) -> Json:
    """Return the schema of a type. Add those of its records to the definitions."""
    origin, inside = get_origin(kind), get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(member, definitions) for member in inside]}
    if origin is Literal:
        return {"enum": list(inside)}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        encoded = _encoded_type(kind)
        if encoded is not kind:
            return _schema(encoded, definitions)
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}  # a record may contain its own type
            definitions[kind.__name__] = _record_schema(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if origin in (tuple, list, set, frozenset, Sequence):
        if origin is tuple and inside[-1:] != (Ellipsis,):
            items = [_schema(member, definitions) for member in inside]
            return {"type": "array", "prefixItems": items}
        return {"type": "array", "items": _schema(inside[0], definitions)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema(inside[1], definitions)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if isinstance(kind, type) and issubclass(kind, PurePath):
        return {"type": "string"}
    return {}  # anything


def _encoded_type(record: type) -> Any:
    """Return the type of the data that a record is encoded as."""
    document = getattr(record, "document", None)
    return record if document is None else get_type_hints(document)["return"]


def _record_schema(record: type, definitions: dict[str, Json]) -> Json:
    hints, names = get_type_hints(record), json_names(record)
    properties: dict[str, Json] = {}
    if isinstance(getattr(record, "kind", None), str):
        properties["kind"] = {"const": vars(record)["kind"]}
    for name, attribute in names.items():
        member: Any = getattr(record, attribute, None)
        is_derived = isinstance(member, derived)
        hint = get_type_hints(member.fget)["return"] if is_derived else hints[attribute]
        properties[name] = _schema(hint, definitions)
    return {
        "type": "object",
        "description": (record.__doc__ or "").partition("\n")[0],
        "properties": properties,
        "required": [name for name in properties if names.get(name) not in defaults_of(record)],
    }
