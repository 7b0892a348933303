"""The list of mistakes, read from their programs.

A program is a file in ``programs`` with both versions and the documentation of a mistake. It starts
with a header of ``# key: value`` lines; continuation lines are indented. Wrong lines end with
``# wrong``; lines of the repaired version are comments that start with ``# right: ``::

    # title: A different root on each rank
    # ranks: 3
    # returns: [1.0, 1.0, 1.0]
    # gloo: hang hang hang
    dist.broadcast(weights, src=rank)  # wrong
    # right: dist.broadcast(weights, src=0)

``returns`` is the correct value of every rank, or one value per rank, separated by ``|``. ``gloo``
and ``mpi`` list how each rank ends, measured with torch 2.13 and MPICH.
"""

from __future__ import annotations

import re
from ast import literal_eval
from pathlib import Path

from distdemo.learn.mistakes.records import Line, Mistake

WRONG = "  # wrong"
RIGHT = re.compile(r"(\s*)# right: (.*)")
BACKENDS = ("gloo", "mpi")
NAMES = (
    "shape",
    "dtype",
    "reduce-op",
    "root",
    "rank-0-only",
    "uneven-batches",
    "order",
    "recv-recv",
    "send-send",
    "small-receive",
    "same-list",
    "early-read",
    "partial-group",
    "group-rank",
    "stray-barrier",
    "dead-rank",
    "sum-not-mean",
    "late-call",
)
"""Names of all mistakes, in display order."""


def read_mistake(name: str) -> Mistake:
    """Read a mistake from its program's file."""
    file = Path(__file__).parent / "programs" / f"{name.replace('-', '_')}.py"
    found, lines = read_header(file)
    ranks = int(found["ranks"])
    values = tuple(literal_eval(each.strip()) for each in found["returns"].split("|"))
    return Mistake(
        name=name,
        title=found["title"],
        world_size=ranks,
        expected=values * ranks if len(values) == 1 else values,
        outcomes={each: found[each] for each in BACKENDS},
        finding=found.get("finding", ""),
        why=found["why"],
        hints=(found["hint 1"], found["hint 2"], found["hint 3"]),
        program=tuple(map(_line, lines)),
        link=found.get("link", ""),
    )


def read_header(file: Path) -> tuple[dict[str, str], list[str]]:
    """Return the values of a program's header by key, and the lines after the header."""
    lines = file.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    found: dict[str, str] = {}
    key = ""
    for line in lines[:start]:
        text = line.removeprefix("# ")
        if text.startswith(" "):
            found[key] += f" {text.strip()}"
        else:
            key, _, value = text.partition(": ")
            found[key] = value
    return found, lines[start:]


def _line(text: str) -> Line:
    if right := RIGHT.fullmatch(text):
        return Line(right[1] + right[2], "right")
    if text.endswith(WRONG):
        return Line(text.removesuffix(WRONG), "wrong")
    return Line(text)


MISTAKES: dict[str, Mistake] = {name: read_mistake(name) for name in NAMES}
"""Mistakes by name."""
