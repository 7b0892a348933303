"""What ``run`` is asked for, and what came of it: frozen records; no torch, no rich, no typer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from distdemo.encoding import derived
from distdemo.launcher.records import WorldReport
from distdemo.sanitizer.records import CallCount, Finding


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the user.

    Attributes:
        file: its path as it was typed; empty for a module.
        module: its dotted name, as for ``python -m``; empty for a file.
        function: called on every rank; empty: the whole program runs, as ``python FILE`` would
            run it, and makes its own group.
        arguments: its own, ``sys.argv[1:]``; a function gets those that it has parameters for.
        makes_group: the program makes the process group itself.
    """

    file: str = ""
    module: str = ""
    function: str = ""
    arguments: tuple[str, ...] = ()
    makes_group: bool = False

    @derived
    def name(self) -> str:
        """For people: ``prog.py:run``, ``train.py``, ``-m package.module``."""
        home = PurePath(self.file).name if self.file else f"-m {self.module}"
        return f"{home}:{self.function}" if self.function else home


@dataclass(frozen=True, slots=True)
class Finished:
    """What a rank brings back.

    Attributes:
        text: what its function returned, as ``repr`` writes it; empty for None.
        value: the same as JSON has it: tensors are nested lists; what JSON has no form for is text.
        made_group: it made a process group, or used one that was made for it.
    """

    text: str = ""
    value: Any = None
    made_group: bool = True


@dataclass(frozen=True, slots=True)
class RankOutput:
    """What one rank wrote, and what its function returned.

    Attributes:
        output: to stdout and stderr, in its order; of very much the beginning and, after a line
            that says so, the end. Empty where it wrote straight to the terminal.
        left_out_bytes: in between.
        returned: null for None, a rank that did not come to its end, and a whole program.
        text: the same as ``repr`` writes it; empty for None.
    """

    rank: int
    output: str = ""
    left_out_bytes: int = 0
    returned: Any = None
    text: str = field(default="", metadata={"json": False})


@dataclass(frozen=True, slots=True)
class RunReport:
    """How a program of the user went.

    Attributes:
        world: None if it was interrupted before its ranks could be asked.
        ranks: in order; those of ``--ranks`` alone.
        made_group: some rank made a process group, or used the one that was made for it.
        calls: what the ranks called, and how often.
        findings: what the sanitizer found, one at most.
        warnings: what may be wrong.
        strict: warnings are failures.
        stopped: why the calls were not compared to the end; empty: they were, or were not to be.
    """

    program: Program
    world_size: int
    world: WorldReport | None
    ranks: tuple[RankOutput, ...]
    made_group: bool = True
    calls: tuple[CallCount, ...] = ()
    findings: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    strict: bool = False
    stopped: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every rank came to its end, and no warning counts."""
        well = self.world is not None and self.world.ok
        return well and not (self.strict and self.warnings)
