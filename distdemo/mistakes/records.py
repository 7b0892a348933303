"""A mistake, what is said of it, and what came of it: frozen records; no torch, no rich."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from distdemo.encoding import derived
from distdemo.sanitizer.records import Finding

End = Literal["right", "wrong", "hang", "abort", "error", "lost"]
"""How a rank ends: it returns the right value or a wrong one, waits for ever, its process aborts,
it raises, or it only loses another rank or is stopped with it."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A program with a mistake, and what is said of it. Its program has the same name.

    Attributes:
        name: as it is typed.
        title: what is done wrong, in one line.
        world_size: how many ranks it takes.
        expected: Right return value of each rank.
        happens: by backend: how each rank ends, ``hang wrong right/wrong``; a backend that isn't
            here is not known. Measured with torch 2.13, and MPICH for mpi.
        finding: the kind of what the sanitizer finds; ``shift`` is a warning; empty: nothing.
        why: it happens.
        hints: what to look at, at which rank, at which line.
        link: to somebody whom it happened to.
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
        """The name of its program."""
        return self.name.replace("-", "_")

    def said(self, backend: str) -> list[list[str]]:
        """How each rank may end; empty if that is not known of this backend."""
        return [each.split("/") for each in self.happens.get(backend, "").split()]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a program.

    Attributes:
        role: ``wrong``: only of the program with the mistake; ``right``: only of the repaired one.
    """

    text: str
    role: Literal["both", "wrong", "right"] = "both"


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How one rank ended.

    Attributes:
        value: that it returned.
        expected: that it had to return.
        what: where it hangs, what it raised, how it died; empty if it returned.
    """

    rank: int
    end: End
    value: Any
    expected: Any
    what: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of a mistake over one backend.

    Attributes:
        ends: of the program with the mistake.
        findings: Finding of the sanitizer in another run of it; its warnings if it finds nothing.
        repaired: the ends of the repaired program.
        problems: what was not as documented.
    """

    backend: str
    ends: tuple[RankEnd, ...]
    findings: tuple[Finding, ...]
    repaired: tuple[RankEnd, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MistakeReport:
    """A mistake, run on real ranks.

    Attributes:
        program: with the mistake and repaired.
        trials: one a backend.
    """

    mistake: Mistake
    program: tuple[Line, ...]
    trials: tuple[Trial, ...]
    versions: dict[str, str] = field(default_factory=dict)

    @derived
    def ok(self) -> bool:
        """Whether it did what is documented, and the repaired program is right."""
        return not any(trial.problems for trial in self.trials)


@dataclass(frozen=True, slots=True)
class MistakeList:
    """All mistakes."""

    mistakes: tuple[Mistake, ...]
    ok: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ExerciseFolder:
    """Exercises that were written.

    Attributes:
        files: their names in the folder.
    """

    folder: str
    files: tuple[str, ...]
    ok: ClassVar[bool] = True
