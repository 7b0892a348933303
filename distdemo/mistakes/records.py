"""Documentation and results of a mistake: frozen records; no torch, no rich."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from distdemo.encoding import derived
from distdemo.sanitizer.records import Finding

End = Literal["right", "wrong", "hang", "abort", "error", "lost"]
"""Outcome of a rank: it returned the right value or a wrong one, hung, aborted or raised, or was
lost: it lost a peer or was stopped with the other ranks."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """Documentation of a mistake. Its program has the same name.

    Attributes:
        name: Name on the command line.
        title: Mistake in one line.
        world_size: Number of ranks.
        expected: Right return value of each rank.
        happens: Documented outcome of each rank by backend, such as ``hang wrong right/wrong``;
            unknown for missing backends. Measured with torch 2.13, and MPICH for mpi.
        finding: Kind of the sanitizer's finding, or empty; ``shift`` is a warning.
        why: Explanation of the cause.
        hints: Hints to the place, the rank and the line.
        link: Address of a real-world report.
    """

    name: str
    title: str
    world_size: int
    expected: tuple[Any, ...]
    happens: dict[str, str]
    finding: str
    why: str
    hints: tuple[str, str, str]
    link: str = ""

    @property
    def module(self) -> str:
        """Module name of its program."""
        return self.name.replace("-", "_")

    def documented(self, backend: str) -> list[list[str]]:
        """Return the documented outcomes of each rank; empty if unknown for this backend."""
        return [each.split("/") for each in self.happens.get(backend, "").split()]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a program.

    Attributes:
        role: ``wrong`` if only the broken version has it, ``right`` if only the repaired one has.
    """

    text: str
    role: Literal["both", "wrong", "right"] = "both"


@dataclass(frozen=True, slots=True)
class RankEnd:
    """Outcome of one rank.

    Attributes:
        value: Returned value.
        expected: Expected value.
        what: Place of the hang, exception or cause of death; empty if it returned.
    """

    rank: int
    end: End
    value: Any
    expected: Any
    what: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """Results of a mistake over one backend.

    Attributes:
        ends: Outcomes of the program with the mistake.
        findings: Finding of the sanitizer in another run of it; its warnings if it finds nothing.
        repaired: Outcomes of the repaired program.
        problems: Differences from the documentation.
    """

    backend: str
    ends: tuple[RankEnd, ...]
    findings: tuple[Finding, ...]
    repaired: tuple[RankEnd, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MistakeReport:
    """Result of a mistake, run on real ranks.

    Attributes:
        program: Lines of both versions.
        trials: One trial per backend.
    """

    mistake: Mistake
    program: tuple[Line, ...]
    trials: tuple[Trial, ...]
    versions: dict[str, str] = field(default_factory=dict)

    @derived
    def ok(self) -> bool:
        """True if it behaved as documented and the repaired program is correct."""
        return not any(trial.problems for trial in self.trials)


@dataclass(frozen=True, slots=True)
class MistakeList:
    """The list of mistakes."""

    mistakes: tuple[Mistake, ...]
    ok: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ExerciseFolder:
    """Exercises written to a folder.

    Attributes:
        files: File names in the folder.
    """

    folder: str
    files: tuple[str, ...]
    ok: ClassVar[bool] = True
