"""Parse input values: numbers or JSON from the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import cast

from distdemo.dtypes import DTYPES, DType
from distdemo.errors import UsageError
from distdemo.ops.spec import Number, object_text, pickled_size

Row = tuple[Number, ...]


def read_numbers(arguments: Sequence[str], *, uneven: bool = False) -> list[Row]:
    """Return the rows of ``--values``, one per rank.

    Args:
        arguments: Arguments of the option, in order.
        uneven: True if rows may be empty and of unequal length.

    Raises:
        UsageError: No numbers, or rows of unequal length.
    """
    rows: list[Row] = []
    for text in arguments:
        words = text.replace(",", " ").split()
        numbers = tuple(map(parse_number, words))
        if None in numbers or not (numbers or uneven):
            wrong = words[numbers.index(None)] if words else ""
            raise UsageError(
                f"--values {text.strip() or repr('')}: {wrong!r} is not a number.",
                "Values are numbers, separated by commas.",
                "Try --values 1,2,3 --values 4,5,6.",
            )
        rows.append(cast("Row", numbers))
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
        UsageError: One of them is not JSON.
    """
    objects = []
    for text in arguments:
        try:
            value = json.loads(text)
            pickled_size(value)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"--values {text.strip() or repr('')}: not JSON.",
                f"{str(error) or 'too deep'}. Strings need double quotes.",
                """Try --values '{"loss": 0.5}', or --values '"text"'.""",
            ) from error
        objects.append(object_text(value))
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


def _why_unfit(number: Number, dtype: DType) -> str:
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
