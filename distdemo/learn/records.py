"""Results of running examples: frozen records; no torch, no rich."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from distdemo.calls.records import Finding, Gap
from distdemo.encoding import derived
from distdemo.learn.catalogue import Example, OutcomeKind

_PART = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[a-z]\w*")
_OUTCOMES = {
    "hangs": ("hang", "hung", "deadlock", "stuck", "wait", "block", "freez", "frozen"),
    "error": ("error", "exception", "rais", "fail", "crash"),
    "right": ("right", "correct"),
}
"""Outcomes that an answer can name, each with the beginnings of the words for it."""
_NOT = ("no", "not", "never", "without")


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


Outcomes = tuple[RankOutcome, ...]
"""Outcome of each rank, in order."""


def is_documented(example: Example, backend: str, outcomes: Outcomes) -> bool:
    """Return True if every rank ended in a documented way, or if none is documented."""
    documented = example.documented(backend)
    return not documented or all(
        outcome.kind in kinds for outcome, kinds in zip(outcomes, documented, strict=True)
    )


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """A step that was run.

    Attributes:
        prediction: Answer that the learner typed; empty if none.
    """

    step: Example
    outcomes: Outcomes
    prediction: str = ""

    @derived
    def answer(self) -> Any:
        """Right answer, from the run."""
        outcome = self.outcomes[self.step.rank]
        return self.step.answer_of(outcome.kind, outcome.value)

    @derived
    def predicted(self) -> bool | None:
        """True if the prediction is right; None if it is missing or has another form."""
        return compare(self.prediction, self.answer)

    @property
    def ok(self) -> bool:
        """True if the program ran as documented."""
        return is_documented(self.step, "gloo", self.outcomes)


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
class ExampleList:
    """The steps of the lesson, or the mistakes."""

    examples: tuple[Example, ...]
    ok: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class MistakeReport:
    """Result of a mistake, run on real ranks.

    Attributes:
        outcomes: Outcomes of the program with the mistake.
        findings: Finding of the sanitizer in another run of it.
        repaired: Outcomes of the repaired program.
        problems: Differences from the documentation.
        warnings: Warnings and notes of the sanitizer in that run.
        stopped: Reason why its comparison of calls stopped early; empty if it did not.
        gaps: What ranks couldn't look at.
    """

    mistake: Example
    backend: str
    outcomes: Outcomes
    findings: tuple[Finding, ...]
    repaired: Outcomes
    problems: tuple[str, ...] = ()
    warnings: tuple[Finding, ...] = ()
    stopped: str = ""
    gaps: tuple[Gap, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if it behaved as documented and the repaired program is correct."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class LessonFolder:
    """Exercises, notebook and slides written to a folder.

    Attributes:
        files: Paths of the files in the folder.
        exercises: Number of functions to write.
        mistakes: Number of programs to repair.
        slides: Number of slides.
        solutions: True if the solutions are in it, too.
    """

    folder: str
    files: tuple[str, ...]
    exercises: int
    mistakes: int
    slides: int
    solutions: bool = False
    ok: ClassVar[bool] = True


# ------------------------------------------------------------------------------------------ answers


def parse_answer(text: str) -> list[float | str]:
    """Return the numbers of an answer, or the outcomes that it names if it has no numbers.

    ``It waits: a deadlock`` names one outcome, and ``no error`` none.
    """
    parts = _PART.findall(text.lower().replace("−", "-").replace("n't", " not"))
    numbers: list[float | str] = [float(part) for part in parts if not part[0].isalpha()]
    if numbers or any(part in _NOT for part in parts):
        return numbers
    return [
        outcome
        for outcome, words in _OUTCOMES.items()
        if any(part.startswith(words) for part in parts)
    ]


def compare(text: str, value: Any) -> bool | None:
    """Return whether an answer is right; None if it doesn't have the form of this value."""
    answer = parse_answer(text)
    expected = _flat(value)
    if [type(part) is str for part in answer] != [type(part) is str for part in expected]:
        return None
    return all(
        part == right
        if isinstance(part, str) or isinstance(right, str)
        else math.isclose(part, right, rel_tol=1e-6, abs_tol=1e-9)
        for part, right in zip(answer, expected, strict=True)
    )


def _flat(value: Any) -> list[float | str]:
    """Return the numbers and words in a value."""
    if isinstance(value, list | tuple):
        return [part for item in value for part in _flat(item)]
    return [value]
