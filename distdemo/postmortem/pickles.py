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


def is_pickle(head: bytes) -> bool:
    """Return True if a file with these first bytes is a pickle with a protocol number."""
    return head[:1] == pickle.PROTO and head[1:2] != b"" and head[1] in PROTOCOLS


def load_plain(data: bytes) -> Any:
    """Return the plain data in a pickle.

    Raises:
        UnpicklingError: It contains something else, or is truncated.
        ValueError: A text isn't UTF-8.
    """
    try:
        return _load(data)
    except (IndexError, KeyError, struct.error):
        raise UnpicklingError("truncated") from None


def _load(data: bytes) -> Any:
    """Run the instructions, the most frequent ones first; ``pickletools`` says what each does."""
    stack: list[Any] = []
    outer: list[list[Any]] = []  # the stacks below the marks
    memo: dict[int, Any] = {}
    integer = int.from_bytes
    at = 0
    while True:
        code = data[at]
        at += 1
        match code:
            case 0x68:  # BINGET
                stack.append(memo[data[at]])
                at += 1
            case 0x28:  # MARK
                outer.append(stack)
                stack = []
            case 0x4B:  # BININT1
                stack.append(data[at])
                at += 1
            case 0x5D:  # EMPTY_LIST
                stack.append([])
            case 0x65:  # APPENDS
                items = stack
                stack = outer.pop()
                _of_type(stack[-1], list).extend(items)
            case 0x4D:  # BININT2
                stack.append(integer(data[at : at + 2], "little"))
                at += 2
            case 0x4E:  # NONE
                stack.append(None)
            case 0x4A:  # BININT
                stack.append(integer(data[at : at + 4], "little", signed=True))
                at += 4
            case 0x7D:  # EMPTY_DICT
                stack.append({})
            case 0x75:  # SETITEMS
                items = stack
                stack = outer.pop()
                _set(stack[-1], items)
            case 0x88 | 0x89:  # NEWTRUE, NEWFALSE
                stack.append(code == 0x88)
            case 0x85 | 0x86 | 0x87:  # TUPLE1, TUPLE2, TUPLE3
                size = code - 0x84
                stack[-size:] = [(*stack[-size:],)]
            case 0x8A:  # LONG1
                start = at + 1
                at = start + data[at]
                stack.append(integer(data[start:at], "little", signed=True))
            case 0x58 | 0x8C | 0x8D:  # BINUNICODE, SHORT_BINUNICODE, BINUNICODE8
                start = at + {0x58: 4, 0x8C: 1, 0x8D: 8}[code]
                at = start + integer(data[at:start], "little")
                stack.append(data[start:at].decode("utf-8", "surrogatepass"))
            case 0x71:  # BINPUT
                memo[data[at]] = stack[-1]
                at += 1
            case 0x94:  # MEMOIZE
                memo[len(memo)] = stack[-1]
            case 0x6A:  # LONG_BINGET
                stack.append(memo[integer(data[at : at + 4], "little")])
                at += 4
            case 0x72:  # LONG_BINPUT
                memo[integer(data[at : at + 4], "little")] = stack[-1]
                at += 4
            case 0x47:  # BINFLOAT
                stack += struct.unpack_from(">d", data, at)
                at += 8
            case 0x61:  # APPEND
                item = stack.pop()
                _of_type(stack[-1], list).append(item)
            case 0x73:  # SETITEM
                items = [stack.pop(), stack.pop()]
                _set(stack[-1], items[::-1])
            case 0x74:  # TUPLE
                items = stack
                stack = outer.pop()
                stack.append(tuple(items))
            case 0x29:  # EMPTY_TUPLE
                stack.append(())
            case 0x2E:  # STOP
                return stack.pop()
            case 0x80:  # PROTO
                at += 1
            case 0x95:  # FRAME
                at += 8
            case _:
                names = [known.name for known in pickletools.opcodes if ord(known.code) == code]
                raise UnpicklingError(f"contains {''.join(names) or code}, which isn't data")


def _of_type(value: Any, kind: type) -> Any:
    """Return a value if it has exactly this type."""
    if type(value) is not kind:
        raise UnpicklingError(f"has a {type(value).__name__} in place of a {kind.__name__}")
    return value


def _set(target: Any, items: list[Any]) -> None:
    """Set the keys and values in turn. Keys are texts: the hash of a nested tuple never ends."""
    for key in items[::2]:
        _of_type(key, str)
    _of_type(target, dict).update(zip(items[::2], items[1::2], strict=False))
