"""The steps of the lesson, read from their programs.

A step is a file in ``steps``: a header with its texts (see ``programs``), and its program::

    # title: broadcast: copy one rank's tensor to all ranks
    # ranks: 4
    # text: A collective is a function that all ranks call together.
    # question: What is total on rank 2?
    # form: two numbers, such as 7 8
    # ask: 2 total
    # returns: {"total": [10, 11]}
    # why: All ranks hold the numbers of rank 1.
    # try: distdemo broadcast --root 2

``ask`` is a rank and, if its value has several parts, the part. ``returns`` is the documented value
of every rank, or one value per rank, separated by ``|``. A program that returns nothing has
``outcome`` instead: ``hang`` or ``error``.
"""

from __future__ import annotations

from pathlib import Path

from distdemo.learn.programs import read_program, values_of_ranks
from distdemo.learn.records import Step

NAMES = (
    "hello",
    "broadcast",
    "scatter-gather",
    "all-gather",
    "all-reduce",
    "ring",
    "mistakes",
    "gradients",
    "ddp",
    "zero-1",
    "moe",
    "ring-attention",
)
"""Names of all steps, in order."""


def read_step(name: str) -> Step:
    """Read a step from its program's file."""
    file = Path(__file__).parent / "steps" / f"{name.replace('-', '_')}.py"
    header, lines = read_program(file)
    found = {key: values[0] for key, values in header.items()}
    ranks = int(found["ranks"])
    rank, _, column = found["ask"].partition(" ")
    return Step(
        name=name,
        number=NAMES.index(name) + 1,
        title=found["title"],
        world_size=ranks,
        text=found["text"],
        program="".join(f"{line}\n" for line in lines),
        question=found["question"],
        form=found["form"],
        rank=int(rank),
        column=column,
        outcome=found.get("outcome", "right"),  # type: ignore[arg-type]  # one of the kinds
        expected=values_of_ranks(found.get("returns", "None"), ranks),
        why=found["why"],
        commands=tuple(header["try"]),
        needs_compiler="imports" in found,
    )


STEPS: dict[str, Step] = {name: read_step(name) for name in NAMES}
"""Steps by name."""
