"""Programs with a header: comments of the form ``# key: value`` before the first line of code.

Continuation lines of a value are indented. A key may be repeated::

    # title: broadcast: copy one rank's tensor to all ranks
    # text: A collective is a function that all ranks call
    #   together.
    # try: distdemo broadcast --root 2
    # try: distdemo explain broadcast
    import torch
"""

from __future__ import annotations

from ast import literal_eval
from pathlib import Path
from typing import Any

Header = dict[str, list[str]]
"""Values by key."""


def read_program(file: Path) -> tuple[Header, list[str]]:
    """Return the header of a program, and the lines of its code."""
    lines = file.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    header: Header = {}
    key = ""
    for line in lines[:start]:
        text = line.removeprefix("# ")
        if text.startswith(" "):
            header[key][-1] += f" {text.strip()}"
        else:
            key, _, value = text.partition(": ")
            header.setdefault(key, []).append(value)
    return header, lines[start:]


def values_of_ranks(text: str, ranks: int) -> tuple[Any, ...]:
    """Parse the value of every rank, or one value per rank, separated by ``|``."""
    values = tuple(literal_eval(each.strip()) for each in text.split("|"))
    return values * ranks if len(values) == 1 else values
