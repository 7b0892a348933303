"""What ``run`` is asked for, and what came of it: frozen records; no torch, no rich, no typer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from distdemo.launcher.records import WorldReport

# What gloo itself prints, on standard output, when a group is made (torch 2.6 to 2.8).
_CHATTER = re.compile(
    r"^\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. "
    r"Expected number of connected peer ranks is : \d+\r?(?:\n|\Z)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the user's own.

    Attributes:
        file: its path as it was typed; empty for a module.
        module: its dotted name, as for ``python -m``; empty for a file.
        function: called on every rank with the group ready; empty: the whole program runs, as
            ``python FILE`` would run it, and makes its own group.
        arguments: its own, ``sys.argv[1:]``; a function gets those that it has parameters for.
    """

    file: str = ""
    module: str = ""
    function: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For people: ``prog.py:run``, ``train.py``, ``-m package.module``."""
        home = PurePath(self.file).name if self.file else f"-m {self.module}"
        return f"{home}:{self.function}" if self.function else home


@dataclass(frozen=True, slots=True)
class Value:
    """What a rank's function returned.

    Attributes:
        text: as ``repr`` writes it, long ones cut; empty for None.
        plain: the same as JSON has it: numbers, text, lists, objects with text as keys; tensors
            are nested lists; what JSON has no form for is the text.
    """

    text: str
    plain: Any


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a rank wrote to stdout and stderr, in its order.

    Attributes:
        text: all of it, or its beginning and, after a line that says so, its end.
        left_out: bytes in between that were not kept.
    """

    text: str = ""
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class RunReport:
    """How a program of the user's own went.

    Attributes:
        world: None if it was interrupted: then nobody knows how its ranks would have ended.
        transcripts: one a rank, in order; empty texts where a rank wrote straight to the terminal.
        values: what each rank's function returned; None for a rank that returned nothing, did not
            come to its end, or ran a whole program.
    """

    program: Program
    world_size: int
    backend: str
    device: str
    world: WorldReport | None
    transcripts: tuple[Transcript, ...]
    values: tuple[Value | None, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every rank came to its end."""
        return self.world is not None and self.world.ok


def without_chatter(text: str) -> str:
    """What a program wrote, without the lines that its backend wrote in between."""
    return _CHATTER.sub("", text)
