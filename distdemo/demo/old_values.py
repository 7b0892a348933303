"""The user's own numbers: from the command line, a file or standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from distdemo.dtypes import DTYPES, DType
from distdemo.errors import UsageError
from distdemo.ops.spec import Number

Row = tuple[Number, ...]

HINT = "Try --values 1,2,3 --values 4,5,6, or --values FILE with a line a rank."


def parse_values(given: list[str] | None, *, uneven: bool = False) -> list[Row] | None:
    """The rows that ``--values`` gives, one a rank; None if it was not given.

    Args:
        given: each time that the flag was used.
        uneven: rows may be of unequal length, and empty.

    Raises:
        UsageError: neither numbers nor a readable file of them.
    """
    if not given:
        return None
    if len(given) == 1 and given[0].strip() and (given[0] == "-" or _row(given[0]) is None):
        return _read(given[0])
    return [() if uneven and not text.strip() else _numbers(text, _where(text)) for text in given]


def parse_number(text: str) -> Number | None:
    """A number as people write it: 3, -1.5, 1e-3, nan, 1+2j, true; None if it is none."""
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float, complex):
        try:
            return kind(word)
        except ValueError:
            continue
    return None


def misfit(number: Number, dtype: DType) -> str | None:  # noqa: PLR0911 - one return a reason
    """Why this number can't be an element of this type; None if it can."""
    if isinstance(number, complex):
        if dtype.kind != "complex":
            return "It is a complex number."
        return misfit(number.real, dtype) or misfit(number.imag, dtype)
    if dtype.kind == "bool":
        return None if number in (0, 1) else "A bool is true or false, 1 or 0."
    if dtype.kind == "int":
        if number != number or number in (float("inf"), float("-inf")) or number != int(number):  # noqa: PLR0124 - NaN
            return "It is no whole number."
        if not dtype.lowest <= number <= dtype.exact:
            return f"{dtype.name} goes from {dtype.lowest} to {dtype.exact}."
        return None
    if isinstance(number, int) and not _keeps(number, dtype):
        return f"{dtype.name} holds whole numbers exactly up to {dtype.exact}."
    if abs(number) > dtype.largest and abs(number) != float("inf"):
        return f"The largest {dtype.name} is {dtype.largest:g}."
    return None


def check_fit(rows: list[Row], dtype_name: str, *, uneven: bool = False) -> None:
    """Refuse rows of unequal length (unless uneven), and numbers that the dtype can't hold.

    Raises:
        UsageError: naming the row.
    """
    lengths = [len(row) for row in rows]
    if len(set(lengths)) > 1 and not uneven:
        odd = next(index for index, length in enumerate(lengths) if length != lengths[0])
        raise UsageError(
            f"--values: row 0 has {_count(lengths[0])}, row {odd} has {_count(lengths[odd])}.",
            "All ranks' tensors have the same shape in this operation.",
            "Give every rank the same number of values.",
        )
    dtype = DTYPES[dtype_name]
    for index, row in enumerate(rows):
        for number in row:
            reason = misfit(number, dtype)
            if reason is not None:
                raise UsageError(
                    f"--values: {number} in row {index} is no {dtype.name}.",
                    reason,
                    roomier(number),
                )


def _count(count: int) -> str:
    return f"{count} number" if count == 1 else f"{count} numbers"


def roomier(number: Number) -> str:
    """What to try for a number that doesn't fit."""
    if isinstance(number, complex):
        return "Try --dtype complex64."
    if isinstance(number, float):
        return "Try --dtype float64."
    return "Try --dtype int64." if -(2**63) <= number < 2**63 else "Try --dtype float64."


def _keeps(number: int, dtype: DType) -> bool:
    """Whether a floating-point type holds this whole number without rounding it."""
    magnitude = abs(number)
    spare = max(0, magnitude.bit_length() - (dtype.exact.bit_length() - 1))
    return magnitude >> spare << spare == magnitude


def _row(text: str) -> Row | None:
    """The numbers in a line, separated by commas or spaces; None if one of them is none."""
    words = text.replace(",", " ").split()
    numbers = [parse_number(word) for word in words]
    known = tuple(number for number in numbers if number is not None)
    return known if known and len(known) == len(numbers) else None


def _where(text: str) -> str:
    return f"--values {text}" if text.strip() else f'--values "{text}"'


def _numbers(text: str, where: str) -> Row:
    row = _row(text)
    if row is not None:
        return row
    wrong = _first_wrong(text)
    what = f"{where}: {wrong!r} is no number." if wrong else f"{where}: there is no number."
    raise UsageError(what, "Values are numbers, separated by commas.", HINT)


def _first_wrong(text: str) -> str | None:
    """The first word that is no number; None if there is none."""
    words = text.replace(",", " ").split()
    return next((word for word in words if parse_number(word) is None), None)


def _read(name: str) -> list[Row]:
    """A line of numbers a rank."""
    lines = read_lines(name, "numbers")
    return [_numbers(line, f"--values {name}, line {number}") for number, line in lines]


def read_lines(name: str, kind: str) -> list[tuple[int, str]]:
    """The numbered lines of a file, or of standard input for ``-``: one a rank.

    Blank lines and those that begin with # are skipped.

    Raises:
        UsageError: it can't be read, or holds no line.
    """
    source = "standard input" if name == "-" else name
    lines = [
        (number, line)
        for number, line in enumerate(_text(name, kind).splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        raise UsageError(
            f"--values {name}: {source} holds no line of {kind}.", "It needs a line a rank.", HINT
        )
    return lines


def _text(name: str, kind: str) -> str:
    if name == "-" and sys.stdin is None:
        raise UsageError("--values -: standard input is closed.", "Values come from it.", HINT)
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(
            f"--values {name}: that is neither {kind} nor a file.",
            f"{_first_wrong(name)!r} is no number, and there is no file of that name here."
            if kind == "numbers"
            else f"There is no file of that name here, and as {kind} it can't be read.",
            HINT,
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--values {name}: it can't be read.", str(error), HINT) from error
