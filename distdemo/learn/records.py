"""Programs and what came of running them: frozen records; no torch, no rich."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from distdemo.calls.records import Finding
from distdemo.encoding import derived
from distdemo.learn.answers import compare

OutcomeKind = Literal["right", "wrong", "hang", "abort", "error", "lost"]
"""Outcome of a rank: it returned the right value or a wrong one, hung, aborted or raised, or was
lost: it lost a peer or was stopped with the other ranks."""

# ------------------------------------------------------------------------------------- programs


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a program.

    Attributes:
        role: ``wrong`` if only the broken version has it, ``right`` if only the repaired one has.
    """

    text: str
    role: Literal["both", "wrong", "right"] = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program with a header. An exercise has nothing but a title and hints.

    Attributes:
        name: Name on the command line.
        number: Position in the list, from 1.
        title: Subject in one line.
        world_size: Number of ranks.
        expected: Right return value of each rank.
        outcomes: Documented outcome of each rank by backend, such as ``hang wrong right/wrong``;
            unknown for missing backends. Measured with torch 2.13, and MPICH for mpi.
        why: Explanation of what it does.
        hints: Hints, from vague to precise; those of a mistake are to the place, rank and line.
        lines: Lines of its code; those of a mistake are of both versions.
    """

    name: str
    number: int
    title: str
    world_size: int = 0
    expected: tuple[Any, ...] = ()
    outcomes: dict[str, str] = field(default_factory=dict)
    why: str = ""
    hints: tuple[str, ...] = ()
    lines: tuple[Line, ...] = field(metadata={"json": False})

    @property
    def module(self) -> str:
        """Name of its file, without the suffix."""
        return self.name.replace("-", "_")

    def source(self, *, repaired: bool = False) -> str:
        """Return its code; of a mistake with the mistake, or repaired."""
        left_out = "wrong" if repaired else "right"
        return "".join(f"{line.text}\n" for line in self.lines if line.role != left_out)

    def documented(self, backend: str) -> list[list[str]]:
        """Return the documented outcomes of each rank; empty if unknown for this backend."""
        return [kinds.split("/") for kinds in self.outcomes.get(backend, "").split()]

    def is_documented(self, backend: str, outcomes: tuple[RankOutcome, ...]) -> bool:
        """Return True if every rank ended in a documented way, or if none is documented."""
        documented = self.documented(backend)
        return not documented or all(
            outcome.kind in kinds for outcome, kinds in zip(outcomes, documented, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Program):
    """A step of the lesson.

    Attributes:
        text: What is new.
        question: Question about one rank.
        form: Form of the answer, with an example.
        rank: Rank that the question is about.
        column: Part of its value that the question is about; empty for the whole value.
        commands: Commands to try next.
        needs_compiler: True if the program imports torch's compiler, as DDP does.
    """

    text: str
    question: str
    form: str
    rank: int
    column: str = ""
    commands: tuple[str, ...]
    needs_compiler: bool = False

    @derived
    def program(self) -> str:
        """Its code."""
        return self.source()

    @property
    def answer(self) -> Any:
        """Documented answer."""
        kind = self.documented("gloo")[self.rank][0]
        return self.answer_of(kind, self.expected[self.rank])

    def answer_of(self, kind: str, value: Any) -> Any:
        """Return the answer that a rank's outcome gives."""
        if kind not in ("right", "wrong"):
            return "hangs" if kind == "hang" else "error"
        if self.expected[self.rank] is None:  # the question is about the outcome
            return "right"
        return value[self.column] if self.column else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake(Program):
    """A mistake.

    Attributes:
        finding: Kind of the sanitizer's finding, or empty; ``shift`` is a warning.
        link: Address of a real-world report.
    """

    finding: str = ""
    link: str = ""


# -------------------------------------------------------------------------------------- results


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
class PlayedStep:
    """A step that was run.

    Attributes:
        outcomes: Outcome of each rank.
        prediction: Answer that the learner typed; empty if none.
    """

    step: Step
    outcomes: tuple[RankOutcome, ...]
    prediction: str = ""

    @derived
    def answer(self) -> Any:
        """Right answer, from the run."""
        outcome = self.outcomes[self.step.rank]
        return self.step.answer_of(outcome.kind, outcome.value)

    @derived
    def predicted(self) -> bool | None:
        """True if the prediction is right; None if it is missing or has another form."""
        has_form = compare(self.prediction, self.step.answer) is not None
        return bool(compare(self.prediction, self.answer)) if has_form else None

    @property
    def ok(self) -> bool:
        """True if the program ran as documented."""
        return self.step.is_documented("gloo", self.outcomes)


@dataclass(frozen=True, slots=True)
class Lesson:
    """The steps that were played.

    Attributes:
        following: Name of the step to continue with; empty after the last one.
    """

    steps: tuple[PlayedStep, ...]
    following: str = ""

    @property
    def ok(self) -> bool:
        """True if all programs ran as documented; wrong predictions are no failure."""
        return all(played.ok for played in self.steps)


@dataclass(frozen=True, slots=True)
class StepList:
    """The list of steps."""

    steps: tuple[Step, ...]
    ok: ClassVar[bool] = True


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
        return self.mistake.lines

    @property
    def problems(self) -> tuple[str, ...]:
        """Differences from the documentation, over each backend."""
        return tuple(
            f"Over {trial.backend}: {problem}"
            for trial in self.trials
            for problem in trial.problems
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


@dataclass(frozen=True, slots=True)
class ExerciseFolder:
    """Exercises written to a folder.

    Attributes:
        files: Paths of the files in the folder.
    """

    folder: str
    files: tuple[str, ...]
    ok: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Hint:
    """One hint of an exercise.

    Attributes:
        number: Number of the hint, from 1.
        count: Number of hints that the exercise has.
    """

    exercise: str
    number: int
    count: int
    text: str
    ok: ClassVar[bool] = True
