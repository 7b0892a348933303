"""Documentation and results of a mistake: frozen records; no torch, no rich."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from distdemo.encoding import derived
from distdemo.sanitizer.records import Finding

OutcomeKind = Literal["right", "wrong", "hang", "abort", "error", "lost"]
"""Outcome of a rank: it returned the right value or a wrong one, hung, aborted or raised, or was
lost: it lost a peer or was stopped with the other ranks."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a program.

    Attributes:
        role: ``wrong`` if only the broken version has it, ``right`` if only the repaired one has.
    """

    text: str
    role: Literal["both", "wrong", "right"] = "both"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake: its documentation and its program.

    Attributes:
        name: Name on the command line.
        title: Mistake in one line.
        world_size: Number of ranks.
        expected: Right return value of each rank.
        outcomes: Documented outcome of each rank by backend, such as ``hang wrong right/wrong``;
            unknown for missing backends. Measured with torch 2.13, and MPICH for mpi.
        finding: Kind of the sanitizer's finding, or empty; ``shift`` is a warning.
        why: Explanation of the cause.
        hints: Hints to the place, the rank and the line.
        program: Lines of its program, in both versions.
        link: Address of a real-world report.
    """

    name: str
    title: str
    world_size: int
    expected: tuple[Any, ...]
    outcomes: dict[str, str]
    finding: str
    why: str
    hints: tuple[str, str, str]
    program: tuple[Line, ...] = field(metadata={"json": False})
    link: str = ""

    @property
    def module(self) -> str:
        """Module name of its program."""
        return self.name.replace("-", "_")

    @property
    def goal(self) -> str:
        """Purpose of its program, which is the program's docstring."""
        return self.program[0].text.strip('"')

    def text(self, *, repaired: bool = False) -> str:
        """Return the program with the mistake, or repaired."""
        left_out = "wrong" if repaired else "right"
        return "".join(f"{line.text}\n" for line in self.program if line.role != left_out)

    def documented(self, backend: str) -> list[list[str]]:
        """Return the documented outcomes of each rank; empty if unknown for this backend."""
        return [each.split("/") for each in self.outcomes.get(backend, "").split()]


@dataclass(frozen=True, slots=True)
class RankOutcome:
    """Outcome of one rank.

    Attributes:
        value: Returned value.
        expected: Expected value.
        what: Place of the hang, exception or cause of death; empty if it returned.
    """

    rank: int
    kind: OutcomeKind
    value: Any
    expected: Any
    what: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """Results of a mistake over one backend.

    Attributes:
        outcomes: Outcomes of the program with the mistake.
        findings: Finding of the sanitizer in another run of it; its warnings if it finds nothing.
        repaired: Outcomes of the repaired program.
        problems: Differences from the documentation.
    """

    backend: str
    outcomes: tuple[RankOutcome, ...]
    findings: tuple[Finding, ...]
    repaired: tuple[RankOutcome, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MistakeReport:
    """Result of a mistake, run on real ranks.

    Attributes:
        trials: One trial per backend.
    """

    mistake: Mistake
    trials: tuple[Trial, ...]
    versions: dict[str, str] = field(default_factory=dict)

    @derived
    def program(self) -> tuple[Line, ...]:
        """Lines of the program, in both versions."""
        return self.mistake.program

    @property
    def problems(self) -> tuple[str, ...]:
        """Differences from the documentation, over each backend."""
        return tuple(
            f"Over {each.backend}: {what}" for each in self.trials for what in each.problems
        )

    @property
    def ok(self) -> bool:
        """True if it behaved as documented and the repaired program is correct."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class MistakeList:
    """The list of mistakes."""

    mistakes: tuple[Mistake, ...]
    ok: ClassVar[bool] = True
