"""Encode frozen records as JSON and decode them: all documents, files and messages.

A record is a dataclass; its field names are the JSON names. If a record has a method
``document``, its return value is written instead: a form for users, which is never decoded.
Properties declared with :class:`derived` are written too. Members of a union have
``kind: ClassVar[str]``, which is written as ``"kind"``.

Fields that equal their default are left out; `decode` restores them. Fields whose name begins with
``_``, and those with ``metadata={"json": False}``, are left out too;
``metadata={"json": "at_s"}`` renames a field. JSON has no NaN and no infinities: they are the
strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``. Bytes are base64.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
import math
import pickle
import re
import reprlib
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from distdemo.text import MAX_CHARS

Json = Any
SCHEMA_VERSION = 4
T = TypeVar("T")
_short = reprlib.repr

_FINITE = ("_s", "_bytes")  # suffixes of names of times and sizes
_WIDTH = 100  # of a line
_NO_DEFAULT = object()  # differs from every default
_LARGEST = 2**63  # integer, as in other JSON readers
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# Characters that control a terminal, reorder text or can't be encoded, and that JSON doesn't
# escape: those that `distdemo.view.foreign.printable` escapes. They only occur in strings.
_UNSAFE = re.compile(
    r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


class derived(property):  # noqa: N801 - it is used as a decorator, as property is
    """A property that is encoded like a field, but not decoded."""


def encode(value: Any, *, decodable: bool = False) -> Json:
    """Return a value as JSON data: dictionaries, lists, strings, numbers, booleans and None.

    Args:
        value: Records and plain data.
        decodable: Encode exactly the fields that ``decode`` needs, including those that documents
            leave out, and no derived ones. For messages between processes.

    Raises:
        TypeError: A part of it is neither a record nor plain data.
    """
    names = _fields if decodable else json_names

    def put(value: Any) -> Json:
        if value is None or isinstance(value, str | bool | int):
            return value.value if isinstance(value, enum.Enum) else value
        if isinstance(value, float):
            if math.isfinite(value):
                return value
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        if isinstance(value, enum.Enum):
            return put(value.value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            if not decodable and hasattr(value, "document"):
                return put(value.document())
            omitted = defaults_of(type(value))
            entry = {
                name: put(member)
                for name, own in names(type(value)).items()
                if (member := getattr(value, own)) != omitted.get(own, _NO_DEFAULT)
            }
            kind = getattr(type(value), "kind", None)
            return {"kind": kind, **entry} if isinstance(kind, str) else entry
        if isinstance(value, Mapping):
            return {str(put(key)): put(item) for key, item in value.items()}
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        if isinstance(value, Sequence):
            return [put(item) for item in value]
        if isinstance(value, complex):
            return str(value).strip("()")
        raise TypeError(f"a {type(value).__name__} can't be encoded")

    return put(value)


def dumps(document: Json) -> str:
    """Return the document as text. Short values and arrays of numbers are on one line."""
    text = _text(document, 0)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _text(value: Json, indent: int) -> str:
    if not isinstance(value, dict | list) or not value:
        return json.dumps(value, allow_nan=False, ensure_ascii=False)
    if isinstance(value, dict):
        ends = "{}"
        parts = [
            f"{json.dumps(name, ensure_ascii=False)}: {_text(item, indent + 2)}"
            for name, item in value.items()
        ]
    else:
        ends = "[]"
        parts = [_text(item, indent + 2) for item in value]
    is_short = indent + sum(map(len, parts)) + 2 * len(parts) <= _WIDTH
    is_flat = not any("\n" in part for part in parts)
    numbers = isinstance(value, list) and all(isinstance(item, int | float) for item in value)
    if (indent and is_short and is_flat) or numbers:
        return ends[0] + ", ".join(parts) + ends[1]
    before = "\n" + " " * (indent + 2)
    return ends[0] + before + f",{before}".join(parts) + "\n" + " " * indent + ends[1]


def loads(data: bytes | str, *, max_bytes: int) -> Json:
    """Parse untrusted JSON.

    Raises:
        ValueError: It is too long, nested too deeply, not JSON, or contains a number that a float
            can't represent, or NaN or an infinity.
    """
    if len(data) > max_bytes:
        raise ValueError(f"{len(data):,} bytes, and the limit is {max_bytes:,}")
    try:
        return json.loads(data, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def decode(kind: type[T], data: Json) -> T:
    """Decode data that ``encode`` returned. Ignores unknown names.

    Args:
        kind: A dataclass, an enum, a plain type, or any union, tuple, list or mapping of these.
        data: Return value of ``loads``. It may be untrusted: nothing in it is executed.

    Raises:
        ValueError: The data doesn't have this type, or a time or size is not finite.
    """
    try:
        return _decode(kind, data)  # type: ignore[no-any-return]  # an instance of kind
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


# ------------------------------------------------------------------------------------- the fields


@cache
def _fields(record: type) -> dict[str, str]:
    return {member.name: member.name for member in dataclasses.fields(record) if member.init}


@cache
def defaults_of(record: type) -> dict[str, Any]:
    """Return the defaults of the fields that have one."""
    defaults = {}
    for member in dataclasses.fields(record):
        if member.default is not dataclasses.MISSING:
            defaults[member.name] = member.default
        elif member.default_factory is not dataclasses.MISSING:
            defaults[member.name] = member.default_factory()
    return defaults


@cache
def json_names(record: type) -> dict[str, str]:
    """Return attribute names by JSON name: the fields, then the derived properties."""
    names = {}
    for member in dataclasses.fields(record):
        name = member.metadata.get("json", True)
        if name and not member.name.startswith("_"):
            names[member.name if name is True else name] = member.name
    for base in reversed(record.__mro__):
        names |= {name: name for name, value in vars(base).items() if isinstance(value, derived)}
    return names


@cache
def _hints(record: type) -> dict[str, Any]:
    """Return the fields' types. Names imported under TYPE_CHECKING can't be resolved."""
    return get_type_hints(record)


# ---------------------------------------------------------------------------------------- decoding


def _decode(kind: Any, data: Json) -> Any:
    origin = get_origin(kind)
    inside = get_args(kind)
    if kind is Any:
        return data
    if origin in (Union, types.UnionType):
        return _decode_union(inside, data)
    if origin is Literal:
        if data not in inside:
            raise ValueError(f"{_short(data)} is none of {inside}")
        return data
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _decode_record(kind, data)
    if origin in (tuple, list, Sequence):
        items = _expect(data, list)
        if origin is tuple and inside[-1:] != (Ellipsis,):
            if len(items) != len(inside):
                raise ValueError(f"{len(items)} items instead of {len(inside)}")
            return tuple(map(_decode, inside, items))
        decoded = (_decode(inside[0], item) for item in items)
        return list(decoded) if origin is list else tuple(decoded)
    if origin in (dict, Mapping):
        pairs = _expect(data, dict).items()
        return {_key(inside[0], key): _decode(inside[1], item) for key, item in pairs}
    return _decode_plain(kind, data)


def _decode_record(kind: type, data: Json) -> object:
    given = _expect(data, dict)
    hints = _hints(kind)
    decoded = {}
    names = {**json_names(kind), **_fields(kind)}
    finite = {own for name, own in names.items() if name.endswith(_FINITE)}
    for name, own in names.items():
        if name in given and own in _fields(kind):
            try:
                decoded[own] = value = _decode(hints[own], given[name])
                if own in finite:
                    _check_finite(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    try:
        return kind(**decoded)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from None


def _decode_union(members: tuple[Any, ...], data: Json) -> Any:
    if data is None and type(None) in members:
        return None
    named = isinstance(data, dict) and data.get("kind")
    reasons = []
    for member in members:
        if member is type(None) or (named and getattr(member, "kind", named) != named):
            continue
        try:
            return _decode(member, data)
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError("; ".join(reasons) or f"there is no {_short(named or data)}")


def _decode_plain(kind: Any, data: Json) -> Any:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    if isinstance(data, str) and kind is str and len(data) > MAX_CHARS:
        raise ValueError(f"a text of {len(data):,} characters; the limit is {MAX_CHARS:,}")
    large = isinstance(data, int) and abs(data) > _LARGEST
    if kind is float:
        if isinstance(data, str) and data in NOT_FINITE:
            return NOT_FINITE[data]
        if isinstance(data, int | float) and not isinstance(data, bool) and not large:
            return float(data)
    elif kind is complex and isinstance(data, str | int | float) and not large:
        return complex(data)
    elif kind is bytes and isinstance(data, str):
        return base64.b64decode(data, validate=True)
    elif kind is object or (type(data) is kind and not large):
        return data
    raise ValueError(f"{_short(data)} is not a {getattr(kind, '__name__', kind)}")


def _key(kind: Any, text: str) -> Any:
    return _decode(int, int(text)) if kind is int else _decode(kind, text)


def _check_finite(value: Any) -> None:
    for item in value if isinstance(value, tuple) else ():
        _check_finite(item)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a time or size")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _expect(data: Json, kind: type[T]) -> T:
    if not isinstance(data, kind):
        name = "object" if kind is dict else "array"
        raise ValueError(f"{_short(data)} is not an {name}")  # noqa: TRY004 - invalid data
    return data


def pickled_size(value: Any) -> int:
    """Return the bytes of its pickle, in the default protocol, which torch.distributed uses."""
    return len(pickle.dumps(value))
