"""Steps, how they ended, exercises and hints: frozen records; no torch, no rich."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from distdemo.encoding import derived
from distdemo.learn.answers import fits, matches
from distdemo.learn.mistakes.records import OutcomeKind, RankOutcome

WORDS: dict[OutcomeKind, str] = {"hang": "hangs", "error": "error", "abort": "error"}
"""Answers about a rank that returned no value; those about the others are ``right``."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step: its texts, its program and its question.

    Attributes:
        name: Name on the command line.
        number: Number on the command line, from 1.
        title: Subject in one line.
        world_size: Number of ranks.
        text: What is new.
        program: Program, which defines ``work(rank, world_size)``.
        question: Question about one rank.
        form: Form of the answer, with an example.
        rank: Rank that the question is about.
        column: Part of its value that the question is about; empty for the whole value.
        outcome: Documented outcome of every rank.
        expected: Documented value of each rank.
        why: Explanation of the answer.
        commands: Commands to try next.
        needs_compiler: True if the program imports torch's compiler, as DDP does.
    """

    name: str
    number: int
    title: str
    world_size: int
    text: str
    program: str
    question: str
    form: str
    rank: int
    column: str
    outcome: OutcomeKind
    expected: tuple[Any, ...]
    why: str
    commands: tuple[str, ...]
    needs_compiler: bool = False

    @property
    def answer(self) -> Any:  # noqa: ANN401 - the program's value, or a word
        """Documented answer."""
        return self.answer_of(RankOutcome(self.rank, self.outcome, self.expected[self.rank], None))

    def answer_of(self, outcome: RankOutcome) -> Any:  # noqa: ANN401 - the program's value, or a word
        """Return the answer that a rank's outcome gives."""
        if outcome.kind not in ("right", "wrong"):
            return WORDS.get(outcome.kind, "error")
        if self.outcome != "right":  # the question is about the outcome itself
            return "right"
        return outcome.value[self.column] if self.column else outcome.value


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
    def answer(self) -> Any:  # noqa: ANN401 - the program's value, or a word
        """Right answer, from the run."""
        return self.step.answer_of(self.outcomes[self.step.rank])

    @derived
    def predicted(self) -> bool | None:
        """True if the prediction is right; None if it is missing or has another form."""
        if not fits(self.prediction, self.step.answer):
            return None
        return matches(self.prediction, self.answer)

    @property
    def ok(self) -> bool:
        """True if the program ran as documented."""
        return all(each.kind == self.step.outcome for each in self.outcomes)


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
        return all(each.ok for each in self.steps)


@dataclass(frozen=True, slots=True)
class StepList:
    """The list of steps."""

    steps: tuple[Step, ...]
    ok: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Exercise:
    """An exercise: a program with something to write or repair, and its test.

    Attributes:
        name: Name on the command line, ``zero-1``.
        title: Task in a few words.
        hints: Hints, from vague to precise.
        files: Text of each file, by its path in the folder.
    """

    name: str
    title: str
    hints: tuple[str, ...]
    files: dict[str, str]


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
