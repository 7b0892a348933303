"""Read input values: numbers or JSON from the command line, a file or standard input."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import Literal

from distdemo.dtypes import DTYPES, DType
from distdemo.errors import UsageError
from distdemo.files import read_file
from distdemo.ops.spec import Number, object_text, pickled_size

Row = tuple[Number, ...]
MAX_BYTES = 4 << 20
MAX_LINES = 1 << 16

HINTS = {
    "numbers": "Try --values 1,2,3 --values 4,5,6, or --values FILE with one line per rank.",
    "JSON": """Try --values '{"loss": 0.5}', or --values '"text"'.""",
}


def read_numbers(arguments: Sequence[str], *, uneven: bool = False) -> list[Row]:
    """Return the rows of ``--values``, one per rank.

    Args:
        arguments: Arguments of the option, in order.
        uneven: True if rows may be empty and of unequal length.

    Raises:
        UsageError: No numbers, no readable file of numbers, or rows of unequal length.
    """
    rows: list[Row] = []
    for text, source in _texts(arguments, "numbers", lambda text: _row(text) is not None):
        row = _row(text)
        if row is None or not (row or uneven):
            wrong = next((word for word in _words(text) if parse_number(word) is None), "")
            what = f"{source}: {wrong!r} is not a number."
            raise UsageError(what, "Values are numbers, separated by commas.", HINTS["numbers"])
        rows.append(row)
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1 and not uneven:
        raise UsageError(
            f"--values has rows of {lengths[0]} and of {lengths[-1]} numbers.",
            "In this operation all ranks need tensors of the same shape.",
            "Give every rank the same number of values.",
        )
    return rows


def read_objects(arguments: Sequence[str]) -> list[str]:
    """Return the objects of ``--values`` as JSON text, one per rank.

    Raises:
        UsageError: One of them is not JSON, or the file can't be read.
    """
    objects = []
    for text, source in _texts(arguments, "JSON", lambda text: not _json_error(text)):
        error = _json_error(text)
        if error:
            what = f"{source}: not JSON."
            raise UsageError(what, f"{error}. Strings need double quotes.", HINTS["JSON"])
        objects.append(object_text(json.loads(text)))
    return objects


def parse_number(text: str) -> Number | None:
    """Parse a number such as 3, -1.5, 1e-3, nan, 1+2j or true; None if it isn't one."""
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float, complex):
        try:
            return kind(word)
        except ValueError:
            continue
    return None


def check_fit(option: str, number: Number, dtype_name: str) -> None:
    """Raise `UsageError`, which suggests another dtype, if the dtype can't hold the number."""
    reason = _why_unfit(number, DTYPES[dtype_name])
    if reason:
        suggested = "complex64" if isinstance(number, complex) else "float64"
        if isinstance(number, int) and -(2**63) <= number < 2**63:
            suggested = "int64"
        raise UsageError(
            f"{option}: {number} does not fit {dtype_name}.", reason, f"Try --dtype {suggested}."
        )


def parse_fill(text: str, highest: int, dtype_name: str) -> Number | Literal["rank"]:
    """Parse ``--fill``: a number, or ``rank`` for each rank's own number.

    Args:
        text: Argument of the option.
        highest: Highest rank number, which the dtype must hold too.
        dtype_name: Dtype of the elements.

    Raises:
        UsageError: It isn't a number, or the dtype can't hold it.
    """
    number = highest if text == "rank" else parse_number(text)
    if number is None:
        why = "It fills every element with a number, or with the rank."
        raise UsageError(f"--fill {text}: not a number.", why, "Try --fill 1 or --fill rank.")
    check_fit(f"--fill {text}", number, dtype_name)
    return "rank" if text == "rank" else number


def _why_unfit(number: Number, dtype: DType) -> str:  # noqa: PLR0911 - one return per reason
    """Return the reason why a dtype can't hold a number; empty if it can."""
    if isinstance(number, complex):
        if dtype.kind != "complex":
            return "It is a complex number."
        return _why_unfit(number.real, dtype) or _why_unfit(number.imag, dtype)
    if dtype.kind == "bool":
        return "" if number in (0, 1) else "A bool is true or false, 1 or 0."
    if dtype.kind == "int":
        if not math.isfinite(number) or number != int(number):
            return "It is not a whole number."
        fits = dtype.lowest <= number <= dtype.exact
        return "" if fits else f"The range of {dtype.name} is {dtype.lowest} to {dtype.exact}."
    if isinstance(number, int):
        spare = max(0, abs(number).bit_length() - (dtype.exact.bit_length() - 1))
        if abs(number) >> spare << spare != abs(number):  # it would be rounded
            return f"{dtype.name} represents integers exactly up to {dtype.exact}."
    if abs(number) > dtype.largest and abs(number) != math.inf:
        return f"The largest {dtype.name} is {dtype.largest:g}."
    return ""


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _row(text: str) -> Row | None:
    """Return the numbers in a line, separated by commas or spaces; None if one isn't a number."""
    numbers = [parse_number(word) for word in _words(text)]
    valid = tuple(number for number in numbers if number is not None)
    return valid if len(valid) == len(numbers) else None


def _json_error(text: str) -> str:
    """Return the error in this JSON; empty if there is none."""
    try:
        pickled_size(json.loads(text))
    except (ValueError, RecursionError) as error:
        return str(error) or "too deep"
    return ""


def _texts(
    arguments: Sequence[str], kind: str, is_valid: Callable[[str], bool]
) -> list[tuple[str, str]]:
    """Return each rank's values with their source (argument or file line).

    Blank lines of a file, and lines that begin with #, are skipped.
    """
    name = arguments[0]
    is_data = is_valid(name) or name.lstrip()[:1] in ("{", "[", '"', "'")
    if len(arguments) > 1 or not name.strip() or (name != "-" and is_data):
        return [(text, f"--values {text.strip() or repr('')}") for text in arguments]
    if name == "-" and sys.stdin is None:
        raise UsageError("--values -: standard input is closed.", "", HINTS[kind])
    try:
        text = _read(name)
    except FileNotFoundError:
        what = f"--values {name}: neither {kind} nor a file."
        raise UsageError(what, "No such file.", HINTS[kind]) from None
    except (OSError, ValueError) as error:
        what = f"--values {name}: it can't be read."
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(what, f"{reason}.", HINTS[kind]) from error
    lines = [
        (line, f"--values {name}, line {number}")
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        what = f"--values {name}: no line of {kind}."
        raise UsageError(what, "It needs one line per rank.", HINTS[kind])
    return lines


def _read(name: str) -> str:
    """Return the text of a file, or of standard input for ``-``.

    Raises:
        OSError: The file can't be read.
        ValueError: It is too long, or not UTF-8.
    """
    if name == "-":
        text = sys.stdin.read(MAX_BYTES + 1)
    else:
        text = read_file(name, max_bytes=MAX_BYTES).decode("utf-8-sig")
    if len(text) > MAX_BYTES:
        raise ValueError(f"It has more than {MAX_BYTES:,} characters")
    if text.count("\n") > MAX_LINES:
        raise ValueError(f"It has more than {MAX_LINES:,} lines")
    return text
