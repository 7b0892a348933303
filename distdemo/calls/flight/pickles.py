"""Read pickles of plain data: dictionaries, lists, tuples, texts and numbers.

A pickle is a program, and one may come from anyone. This reader knows only the instructions that
plain data needs. It calls nothing, and it hashes only texts: time and memory are linear in the size
of the file, which isn't true of ``pickle.Unpickler``, whatever its ``find_class`` refuses.
"""

from __future__ import annotations

import pickle
import pickletools
import struct
from pickle import UnpicklingError
from typing import Any

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
_WIDTHS = {
    **dict.fromkeys(b"\x4b\x68\x71\x80\x8a\x8c", 1),
    **dict.fromkeys(b"\x4d", 2),
    **dict.fromkeys(b"\x4a\x58\x6a\x72", 4),
    **dict.fromkeys(b"\x47\x8d\x95", 8),
}
"""Bytes of the number after an instruction: the argument itself, or its length."""


def is_pickle(head: bytes) -> bool:
    """Return True if a file with these first bytes is a pickle with a protocol number."""
    return head[:1] == pickle.PROTO and head[1:2] != b"" and head[1] in PROTOCOLS


def load_plain(data: bytes) -> Any:
    """Return the plain data in a pickle.

    Raises:
        UnpicklingError: It contains something else, or is truncated.
        ValueError: A text isn't UTF-8.
    """
    return load_part(data, {})


def load_part(data: bytes, memo: dict[int, Any]) -> Any:
    """Return the plain data in a part of a pickle.

    Args:
        data: The part, with an end.
        memo: What is defined before it, by number; gets what it defines.

    Raises:
        UnpicklingError: It contains something else, or is truncated.
        ValueError: A text isn't UTF-8.
    """
    try:
        return _load(data, memo)
    except (IndexError, KeyError, struct.error):
        raise UnpicklingError("truncated") from None


def _load(data: bytes, memo: dict[int, Any]) -> Any:
    """Run the instructions, the most frequent ones first; ``pickletools`` says what each does."""
    stack: list[Any] = []
    outer: list[list[Any]] = []  # the stacks below the marks
    number = at = 0
    while True:
        code = data[at]
        start = at = at + 1
        if code in _WIDTHS:
            at += _WIDTHS[code]
            number = int.from_bytes(data[start:at], "little")
        match code:
            case 0x68 | 0x6A:  # BINGET, LONG_BINGET
                stack.append(memo[number])
            case 0x28:  # MARK
                outer.append(stack)
                stack = []
            case 0x4B | 0x4D:  # BININT1, BININT2
                stack.append(number)
            case 0x5D:  # EMPTY_LIST
                stack.append([])
            case 0x7D:  # EMPTY_DICT
                stack.append({})
            case 0x65 | 0x75 | 0x74:  # APPENDS, SETITEMS, TUPLE
                items = stack
                stack = outer.pop()
                if code == 0x74:
                    stack.append(tuple(items))
                else:
                    _add(stack[-1], items, list if code == 0x65 else dict)
            case 0x4E | 0x88 | 0x89:  # NONE, NEWTRUE, NEWFALSE
                stack.append(None if code == 0x4E else code == 0x88)
            case 0x85 | 0x86 | 0x87:  # TUPLE1, TUPLE2, TUPLE3
                size = code - 0x84
                stack[-size:] = [(*stack[-size:],)]
            case 0x4A:  # BININT
                stack.append(int.from_bytes(data[start:at], "little", signed=True))
            case 0x8A:  # LONG1
                stack.append(int.from_bytes(data[at : at + number], "little", signed=True))
                at += number
            case 0x58 | 0x8C | 0x8D:  # BINUNICODE, SHORT_BINUNICODE, BINUNICODE8
                stack.append(data[at : at + number].decode("utf-8", "surrogatepass"))
                at += number
            case 0x71 | 0x72:  # BINPUT, LONG_BINPUT
                memo[number] = stack[-1]
            case 0x29:  # EMPTY_TUPLE
                stack.append(())
            case 0x94:  # MEMOIZE
                memo[len(memo)] = stack[-1]
            case 0x47:  # BINFLOAT
                stack += struct.unpack(">d", data[start:at])
            case 0x61 | 0x73:  # APPEND, SETITEM
                size = 1 if code == 0x61 else 2
                items = stack[-size:]
                del stack[-size:]
                _add(stack[-1], items, list if code == 0x61 else dict)
            case 0x2E:  # STOP
                return stack.pop()
            case 0x80 | 0x95:  # PROTO, FRAME
                continue
            case _:
                names = [known.name for known in pickletools.opcodes if ord(known.code) == code]
                raise UnpicklingError(f"contains {''.join(names) or code}, which isn't data")


def _add(target: Any, items: list[Any], kind: type) -> None:
    """Append items to a list, or set the keys and values in turn of a dictionary.

    Keys are texts: the hash of a nested tuple never ends.
    """
    _check(target, kind)
    if kind is list:
        target.extend(items)
        return
    for key in items[::2]:
        _check(key, str)
    target.update(zip(items[::2], items[1::2], strict=False))


def _check(value: Any, kind: type) -> None:
    """Check that a value has exactly this type."""
    if type(value) is not kind:
        raise UnpicklingError(f"has a {type(value).__name__} in place of a {kind.__name__}")
