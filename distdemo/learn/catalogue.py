"""The steps, mistakes and exercises of the lesson, read from their programs.

A program begins with a header: comments with the fields of `Example`, a line or more for a field.
Continuation lines are indented, and a field that is a list of texts has a comment for each text::

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

HERE = Path(__file__).parent
WRONG = "  # wrong"
RIGHT = re.compile(r"^(\s*)# right: (.*)")
OutcomeKind = Literal["right", "wrong", "hang", "abort", "error", "lost"]
"""Outcome of a rank: it returned the right value or a wrong one, hung, aborted or raised, or was
lost: it lost a peer or was stopped with the other ranks."""

SLIDES = {
    "hello": ("distdemo hello",),
    "broadcast": ("distdemo explain broadcast", "distdemo broadcast --root 1"),
    "scatter-gather": (
        "distdemo explain scatter",
        "distdemo scatter",
        "distdemo explain gather",
        "distdemo gather",
    ),
    "all-gather": ("distdemo explain all-gather", "distdemo all-gather"),
    "all-reduce": (
        "distdemo explain reduce",
        "distdemo reduce",
        "distdemo explain all-reduce",
        "distdemo all-reduce",
    ),
    "ring": (
        "distdemo explain p2p",
        "distdemo p2p",
        "distdemo trace --algorithm naive -n 3",
        "distdemo trace --algorithm ring -n 3",
        "distdemo trace list all-reduce -n 64 --sizes 1G",
    ),
    "mistakes": (
        "distdemo explain barrier",
        "distdemo mistakes rank-0-only",
        "distdemo mistakes order",
        "distdemo mistakes sum-not-mean",
    ),
    "ddp": ("distdemo train --mode ddp", "distdemo parity programs/train_ddp.py -n 2"),
    "zero-1": ("distdemo explain reduce-scatter",),
    "fsdp": ("distdemo parity programs/train_fsdp.py -n 2",),
    "tensor-parallel": ("distdemo parity programs/train_tensor_parallel.py -n 2",),
    "pipeline": ("distdemo parity programs/train_pipeline.py -n 2",),
    "moe": ("distdemo explain all-to-all",),
    "parity": ("distdemo parity parity.py -n 2  # fails",),
    "latency": ("distdemo trace --algorithm doubling -n 4",),
}
"""Commands whose pictures are the slides of a step; ``# fails`` if one is meant to fail. They run
in the folder of the exercises. The plans of ``docs/teach.md`` name them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A program with a header: a step of the lesson, a mistake, or an exercise.

    Attributes:
        name: Name on the command line.
        number: Position in its list, from 1.
        title: Subject in one line.
        world_size: Number of ranks.
        expected: Right return value of each rank.
        outcomes: Documented outcome of each rank by backend, such as ``hang wrong right/wrong``;
            unknown for missing backends. Measured with torch 2.13, and MPICH for mpi.
        why: Explanation of what it does.
        hints: Hints, from vague to precise; those of a mistake are to the place, rank and line.
        text: What is new in a step.
        question: Question about one rank of a step.
        form: Form of the answer, with an example.
        rank: Rank that the question is about.
        column: Part of its value that the question is about; empty for the whole value.
        commands: Commands to try next.
        slides: Commands whose pictures are the slides of a step.
        finding: Kind of the sanitizer's finding of a mistake, or empty; ``shift`` may be a
            warning.
        link: Address of a real-world report.
        program: Its code; of a mistake the broken version.
        wrong_lines: Numbers of the wrong lines of a mistake.
        repaired: Code of the repaired version of a mistake.
    """

    name: str
    number: int
    title: str
    world_size: int = 0
    expected: tuple[Any, ...] = ()
    outcomes: dict[str, str] = field(default_factory=dict)
    why: str = ""
    hints: tuple[str, ...] = ()
    text: str = ""
    question: str = ""
    form: str = ""
    rank: int = 0
    column: str = ""
    commands: tuple[str, ...] = ()
    slides: tuple[str, ...] = ()
    finding: str = ""
    link: str = ""
    program: str
    wrong_lines: tuple[int, ...] = ()
    repaired: str = ""

    @property
    def module(self) -> str:
        """Name of its file, without the suffix."""
        return self.name.replace("-", "_")

    def documented(self, backend: str) -> list[list[str]]:
        """Return the documented outcomes of each rank; empty if unknown for this backend."""
        return [kinds.split("/") for kinds in self.outcomes.get(backend, "").split()]

    @property
    def answer(self) -> Any:
        """Documented answer to the question."""
        kind = self.documented("gloo")[self.rank][0]
        return self.answer_of(kind, self.expected[self.rank])

    def answer_of(self, kind: str, value: Any) -> Any:
        """Return the answer that a rank's outcome gives."""
        if kind not in ("right", "wrong"):
            return "hangs" if kind == "hang" else "error"
        if self.expected[self.rank] is None:  # the question is about the outcome
            return "right"
        return value[self.column] if self.column else value


def read_examples(folder: str) -> dict[str, Example]:
    """Return the examples in a folder by name, in the order of their numbers."""
    types = get_type_hints(Example)
    examples = []
    for file in (HERE / folder).glob("*.py"):
        header, code = split_header(file.read_text(encoding="utf-8"))
        if header:
            fields = {key: _value(types[key], texts) for key, texts in header.items()}
            name = file.stem.replace("_", "-")
            fields["slides"] = SLIDES.get(name, ()) if "question" in fields else ()
            broken = [line for line in code if not RIGHT.fullmatch(line)]
            wrong = [count for count, line in enumerate(broken, 1) if line.endswith(WRONG)]
            fields["program"] = "".join(f"{line.removesuffix(WRONG)}\n" for line in broken)
            if wrong:
                fixed = [RIGHT.sub(r"\1\2", line) for line in code if not line.endswith(WRONG)]
                fields |= {"wrong_lines": tuple(wrong), "repaired": "\n".join([*fixed, ""])}
            examples.append(Example(name=name, **fields))
    examples.sort(key=lambda example: example.number)
    return {example.name: example for example in examples}


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


STEPS = read_examples("steps")
MISTAKES = read_examples("mistakes/programs")
EXERCISES = {**read_examples("exercises/files"), **MISTAKES}
"""Exercises: first functions to write, in order of difficulty, then mistakes to repair."""


def find(examples: Mapping[str, Example], text: str) -> Example | None:
    """Return the example with this number or name, in any case and with either dash."""
    numbered = {str(example.number): example for example in examples.values()}
    return numbered.get(text) or examples.get(text.lower().replace("_", "-"))
