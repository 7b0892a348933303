"""Values as JSON text, for a store that has no authentication: reading one runs no code of it.

Numbers, text, None and lists are JSON's own; all else is an object with one key, the kind::

    3.5   "text"   null   [1, 2]
    {"tuple": [1, 2]}                 {"set": [1]}        {"dict": [["key", "value"]]}
    {"int": "0x8000000000000000"}     {"float": "nan"}    {"complex": [1.0, -2.0]}
    {"bytes": "aGVsbG8="}             {"text": "7aCA"}    {"range": [0, 8, 2]}
    {"record": "distdemo.demo.records:Piece", "fields": {"shape": …}}
    {"member": "distdemo.some.module:Colour", "name": "RED"}

A record is a frozen dataclass of this package, one that this process has loaded already. Nothing
is imported, unpickled or called but the constructor of such a record with all its fields by name.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from enum import Enum
from typing import Any, TypeAlias

HOME = "distdemo."  # modules whose records and enums may travel
DEEPEST = 128  # lists within lists; a dict counts as two, itself and its pairs
LONGEST = 1 << 28  # characters of one text
_PLAIN_INT = 1 << 63  # below it an integer is written as JSON writes it
_DIGITS = 20  # of an integer as JSON writes it

# What a value comes to be in JSON; mypy has no name for it.
Json: TypeAlias = Any


def encode(value: object) -> str:
    """The text of a value, in ASCII.

    Raises:
        ValueError: it, or something in it, is nothing that travels; or it is nested too deeply.
    """
    return json.dumps(_put(value, 0), allow_nan=False, separators=(",", ":"))


def decode(text: str) -> Any:  # noqa: ANN401 - whatever was encoded
    """The value of a text, equal to the one that was encoded, and of the same types.

    Raises:
        ValueError: the text is no encoded value, whoever wrote it; nothing was run.
    """
    if len(text) > LONGEST:
        raise ValueError(f"a text of {len(text)} characters is too long: at most {LONGEST}")
    try:
        parsed = json.loads(text, parse_int=_parse_int, parse_constant=_refuse_constant)
        return _get(parsed, 0)
    except RecursionError:
        raise ValueError("the text is nested too deeply") from None
    except (TypeError, OverflowError, MemoryError) as error:  # as of a list that is a key
        raise ValueError(f"the text is no encoded value: {error}") from None


# ---------------------------------------------------------------------------------------- writing


def _put(value: object, depth: int) -> Json:
    if depth > DEEPEST:
        raise ValueError(f"the value is nested more than {DEEPEST} deep, or holds itself")
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind in _SIMPLE:
        return _SIMPLE[kind](value)
    if kind in _PARTS:
        name, parts = _PARTS[kind]
        inside = [_put(each, depth + 1) for each in parts(value)]
        return {name: inside} if name else inside
    if isinstance(value, Enum):
        return {"member": _name(kind), "name": value.name}
    if not _is_record(kind):
        raise ValueError(f"a {kind.__module__}.{kind.__qualname__} does not travel")
    members = {name: _put(getattr(value, name), depth + 1) for name in _fields(kind)}
    return {"record": _name(kind), "fields": members}


def _put_text(value: str) -> Json:
    """A lone surrogate is no character; JSON would join two of them to one."""
    if value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value):
        return value
    return {"text": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}


_SIMPLE: dict[type, Callable[[Any], Json]] = {
    int: lambda value: value if abs(value) < _PLAIN_INT else {"int": hex(value)},
    float: lambda value: value if math.isfinite(value) else {"float": repr(value)},
    str: _put_text,
    bytes: lambda value: {"bytes": base64.b64encode(value).decode()},
}
_PARTS: dict[type, tuple[str, Callable[[Any], Iterable[object]]]] = {
    list: ("", iter),
    tuple: ("tuple", iter),
    set: ("set", iter),
    frozenset: ("frozenset", iter),
    dict: ("dict", lambda value: map(list, value.items())),
    complex: ("complex", lambda value: (value.real, value.imag)),
    range: ("range", lambda value: (value.start, value.stop, value.step)),
}


# ---------------------------------------------------------------------------------------- reading


def _get(parsed: Json, depth: int) -> Any:  # noqa: ANN401 - whatever was encoded
    if depth > DEEPEST:
        raise ValueError("the text is nested too deeply")
    if isinstance(parsed, list):
        return [_get(each, depth + 1) for each in parsed]
    if not isinstance(parsed, dict):
        return parsed
    if set(parsed) == {"record", "fields"}:
        return _get_record(parsed["record"], parsed["fields"], depth + 1)
    if set(parsed) == {"member", "name"}:
        return _get_member(parsed["member"], parsed["name"])
    kind, inside = next(iter(parsed.items())) if len(parsed) == 1 else ("", None)
    if kind in _FROM_TEXT and isinstance(inside, str):
        return _FROM_TEXT[kind](inside)
    if kind in _FROM_PARTS and isinstance(inside, list):
        return _FROM_PARTS[kind]([_get(each, depth + 1) for each in inside])
    raise ValueError(f"no kind of value is written with the keys {sorted(parsed)!r:.80}")


def _get_float(text: str) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise ValueError(f"{text!r:.40} is none of the numbers that JSON lacks")
    return float(text)


def _get_bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _get_complex(parts: list[Any]) -> complex:
    if len(parts) != 2 or not all(type(part) is float for part in parts):
        raise ValueError("a complex number is made of two floats")
    return complex(*parts)


def _get_range(parts: list[Any]) -> range:
    if len(parts) != 3 or not all(type(part) is int for part in parts):
        raise ValueError("a range is made of three whole numbers")
    return range(*parts)


def _get_set(members: list[Any]) -> set[Any]:
    found = set(members)
    if len(found) < len(members):
        raise ValueError("a set holds something twice")
    return found


def _get_dict(pairs: list[Any]) -> dict[Any, Any]:
    if not all(type(pair) is list and len(pair) == 2 for pair in pairs):
        raise ValueError("a dict is made of pairs")
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a dict has a key twice")
    return found


_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "int": lambda text: int(text, 16),  # quick however long it is, unlike base 10
    "float": _get_float,
    "text": lambda text: _get_bytes(text).decode("utf-8", "surrogatepass"),
    "bytes": _get_bytes,
}
_FROM_PARTS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "set": _get_set,
    "frozenset": lambda members: frozenset(_get_set(members)),
    "dict": _get_dict,
    "complex": _get_complex,
    "range": _get_range,
}


def _parse_int(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"an integer of {len(text)} digits is written as hexadecimal text")
    return int(text)


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


# ------------------------------------------------------------------------------ records and enums


def _name(kind: type) -> str:
    """What a class of this package is called in a text.

    Raises:
        ValueError: it is none that travels.
    """
    name = f"{kind.__module__}:{kind.__qualname__}"
    _class(name)
    return name


def _class(name: object) -> type:
    """The class of this name, among those that this process has loaded from this package.

    Raises:
        ValueError: there is none, or it is neither a record nor an enum.
    """
    module_name, _, own = name.partition(":") if isinstance(name, str) else ("", "", "")
    module = sys.modules.get(module_name) if module_name.startswith(HOME) else None
    kind = vars(module).get(own) if module is not None else None
    if not isinstance(kind, type) or (kind.__module__, kind.__qualname__) != (module_name, own):
        raise ValueError(f"{name!r:.80} is no class of a loaded module of this package")
    if not (_is_record(kind) or issubclass(kind, Enum)):
        raise ValueError(f"{name!r:.80} is neither a frozen dataclass nor an enum")
    return kind


def _is_record(kind: type) -> bool:
    """Whether it is itself a frozen dataclass, and its constructor only keeps what it is given."""
    made = vars(kind).get("__dataclass_params__")
    plain = not hasattr(kind, "__post_init__")
    return made is not None and made.frozen and plain and all(f.init for f in fields(kind))


def _fields(kind: type) -> list[str]:
    return [each.name for each in fields(kind)]


def _get_record(name: Json, given: Json, depth: int) -> object:
    kind = _class(name)
    if not _is_record(kind) or not isinstance(given, dict) or set(given) != set(_fields(kind)):
        raise ValueError(f"{name} is not made of these fields: {list(given)!r:.200}")
    return kind(**{field: _get(value, depth) for field, value in given.items()})


def _get_member(name: Json, member: Json) -> Enum:
    kind = _class(name)
    if not issubclass(kind, Enum) or member not in kind.__members__:
        raise ValueError(f"{name} has no member {member!r:.40}")
    return kind[member]
