"""The lists of steps, mistakes and exercises, read from their programs.

A program begins with a header: comments with the fields of its record, a line or more each.
Continuation lines are indented, and a field that is a list of texts has a comment for each::

    # number: 4
    # title: A different root on each rank
    # world_size: 3
    # expected: [1, 1, 1]
    # outcomes: {"gloo": "hang hang hang"}
    # why: src is the rank that sends, and all ranks must
    #   pass the same one.
    # hints: All ranks wait in the same call.
    # hints: Ranks 1 and 2 should receive, but they send.
    dist.broadcast(weights, src=rank)  # wrong
    # right: dist.broadcast(weights, src=0)

A mistake has both versions: wrong lines end with ``# wrong``, and lines of the repaired version are
comments that start with ``# right: ``.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from distdemo.learn.records import Line, Mistake, Program, Step

P = TypeVar("P", bound=Program)
HERE = Path(__file__).parent
WRONG = "  # wrong"
RIGHT = re.compile(r"(\s*)# right: (.*)")


def read_programs(kind: type[P], folder: str) -> dict[str, P]:
    """Return the programs in a folder by name, in the order of their numbers."""
    types = get_type_hints(kind)
    programs = []
    for file in (HERE / folder).glob("*.py"):
        header, code = split_header(file.read_text(encoding="utf-8"))
        if header:
            values = {key: _value(types[key], texts) for key, texts in header.items()}
            lines = tuple(map(_line, code))
            programs.append(kind(name=file.stem.replace("_", "-"), lines=lines, **values))
    programs.sort(key=lambda program: program.number)
    return {program.name: program for program in programs}


def split_header(text: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return the texts of each field in the header of a program, and the lines of its code."""
    header: dict[str, list[str]] = {}
    key = ""
    lines = text.splitlines()
    while lines[0].startswith("# "):
        comment = lines.pop(0).removeprefix("# ")
        if comment.startswith(" "):
            header[key][-1] += f" {comment.strip()}"
        else:
            key, _, value = comment.partition(": ")
            header.setdefault(key, []).append(value)
    return header, lines


def _value(kind: Any, texts: list[str]) -> Any:
    if kind is str:
        return texts[0]
    if kind == tuple[str, ...]:
        return tuple(texts)
    value = literal_eval(texts[0])
    return tuple(value) if isinstance(value, list) else value


def _line(text: str) -> Line:
    if right := RIGHT.fullmatch(text):
        return Line(right[1] + right[2], "right")
    if text.endswith(WRONG):
        return Line(text.removesuffix(WRONG), "wrong")
    return Line(text)


STEPS = read_programs(Step, "steps")
MISTAKES = read_programs(Mistake, "mistakes/programs")
EXERCISES: dict[str, Program] = {**read_programs(Program, "exercises/files"), **MISTAKES}
"""Exercises: first functions to write, in order of difficulty, then mistakes to repair."""


def find(programs: Mapping[str, P], text: str) -> P | None:
    """Return the program with this name, in any case and with either dash."""
    return programs.get(text.lower().replace("_", "-"))
