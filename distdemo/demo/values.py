"""Parse input values: numbers or JSON from the command line."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from distdemo.dtypes import DTYPES, DType
from distdemo.errors import UsageError
from distdemo.ops.spec import Number, object_text, pickled_size

Row = tuple[Number, ...]


def read_numbers(arguments: Sequence[str], dtype: str) -> list[Row]:
    """Return the rows of ``--values``, one per rank.

    Args:
        arguments: Arguments of the option, in order.
        dtype: Element type that must hold the numbers.

    Raises:
        UsageError: The dtype can't hold one of them.
    """
    rows = []
    for text in arguments:
        numbers = []
        for word in text.replace(",", " ").split():
            number = parse_number(word)
            if number is None or not _fits(number, DTYPES[dtype]):
                raise UsageError(
                    f"--values {text.strip()}: {word!r} is not a number of {dtype}.",
                    "Values are numbers, separated by commas; --dtype sets their type.",
                    "Try --values 1,2,3 --values 4,5,6.",
                )
            numbers.append(number)
        rows.append(tuple(numbers))
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


def _fits(number: Number, dtype: DType) -> bool:
    """Return True if the dtype can hold the number, perhaps rounded."""
    if dtype.kind == "complex":
        return True
    if isinstance(number, complex):
        return False
    if dtype.kind == "float":
        return True
    return math.isfinite(number) and number == int(number) and dtype.lowest <= number <= dtype.exact
