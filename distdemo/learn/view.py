"""Views of the lesson: the list of steps, a step before and after its run, and the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from distdemo.learn.answers import parse_answer
from distdemo.learn.catalogue import NAMES
from distdemo.learn.mistakes.records import RankOutcome
from distdemo.learn.records import Lesson, PlayedStep, Step, StepList
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Item, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import number, plural
from distdemo.view.tables import Column, Grid

WELCOME = (
    "Each step shows a program and asks what comes of it. Type your prediction and press Enter: "
    "the program runs on real processes, and you see what every rank holds. Enter alone runs it "
    "without a prediction, ? shows how to type an answer, and q stops."
)


def list_view(record: StepList, _: Signs) -> Iterator[Block]:
    """Yield one row per step."""
    grid = Grid([Column("", right=True), Column("Name"), Column("Step", folds=True)])
    grid.rows += [[str(each.number), each.name, each.title] for each in record.steps]
    yield grid
    yield Summary(f"{plural(len(record.steps), 'step')}.", ok=None)
    yield Paragraph(
        "In a terminal, distdemo learn starts with the first one, and distdemo learn NAME or "
        "NUMBER with another.",
        colours.QUIET,
    )


def welcome(_: Signs) -> Iterator[Block]:
    """Yield how the lesson works."""
    yield Paragraph(WELCOME)


def gap(_: Signs) -> Iterator[Block]:
    """Yield an empty line."""
    yield Paragraph()


def step_view(step: Step, sign: Signs) -> Iterator[Block]:
    """Yield what a learner reads before a step runs."""
    place = f"Step {step.number} of {len(NAMES)}"
    yield Heading(f" {sign.dot} ".join((place, step.name, plural(step.world_size, "rank"))))
    yield Paragraph(step.title)
    yield Paragraph()
    yield Paragraph(step.text)
    yield Paragraph()
    lines = step.program.splitlines()
    numbered = (f"{number:>2}  {line}".rstrip() for number, line in enumerate(lines, start=1))
    yield Paragraph("\n".join(numbered), verbatim=True)
    yield Paragraph()
    yield Paragraph(f"{step.question} ({step.form.partition(', such as')[0]})", "bold")


def help_view(step: Step, typed: str, _: Signs) -> Iterator[Block]:
    """Yield the form of the answer, and how the one that was typed differs."""
    found = parse_answer(typed)
    wrong = f"You typed {plural(len(found), 'number')}. " if _are_numbers(found) else ""
    text = f"{wrong}Type {step.form}. Enter alone runs the program, q stops."
    yield Paragraph(text, colours.QUIET)


def choices_view(_: Signs) -> Iterator[Block]:
    """Yield what can be typed after a step."""
    yield Paragraph("Enter: the next step. b: one step back. q: stop.", colours.QUIET)


def result_view(played: PlayedStep, sign: Signs) -> Iterator[Block]:
    """Yield what every rank holds, the verdict on the prediction, and the explanation."""
    step = played.step
    names = list(step.expected[0]) if isinstance(step.expected[0], dict) else ["Returns"]
    columns = [Column("Rank", right=True), *(Column(name, folds=True) for name in names)]
    grid = Grid([*columns, *([Column("Prediction", folds=True)] if played.prediction else [])])
    for each in played.outcomes:
        grid.rows.append([Text(str(each.rank), style=colours.of_rank(each.rank))])
        grid.rows[-1] += _cells(each, names, sign)
        if played.prediction and each.rank == step.rank:
            typed = played.prediction
            counts = played.predicted is not None
            grid.rows[-1].append(_marked(played, typed, sign) if counts else typed)
    yield grid
    if not played.ok:
        problem = "The program did not run as documented."
        yield Item(sign.wrong, step.name, problem, colours.WRONG, is_problem=True)
    if played.prediction and played.predicted is None:
        yield Paragraph(f"{played.prediction} isn't counted: type {step.form}.")
    elif played.prediction:
        answer = f"Not quite. Answer: {text_of(played.answer, sign)}."
        yield Paragraph(_marked(played, "Right." if played.predicted else answer, sign))
    yield Paragraph(step.why)
    yield Paragraph()
    yield Paragraph("Try in another terminal:", colours.QUIET)
    yield Paragraph("\n".join(f"  {each}" for each in step.commands), verbatim=True)


def _are_numbers(answer: list[float | str]) -> bool:
    return bool(answer) and not any(isinstance(each, str) for each in answer)


def _cells(outcome: RankOutcome, names: list[str], sign: Signs) -> list[Text | str]:
    """Return what a rank holds, by name, or how it ended."""
    if outcome.kind in ("right", "wrong"):
        parts = outcome.value.values() if isinstance(outcome.value, dict) else [outcome.value]
        return [text_of(each, sign) for each in parts]
    what = f"hangs {outcome.what}" if outcome.kind == "hang" else outcome.what
    return [what.rstrip(), *[""] * (len(names) - 1)]


def _marked(played: PlayedStep, text: str, sign: Signs) -> Text:
    """Return a text with the mark of a right or wrong prediction."""
    mark, style = (sign.right, colours.RIGHT) if played.predicted else (sign.wrong, colours.UNSURE)
    return Text(f"{mark} {text}", style=style)


def text_of(value: Any, sign: Signs) -> str:  # noqa: ANN401 - a program's value
    """Format a value as tables of tensors do: ``[10 11]``."""
    if isinstance(value, list):
        return f"[{' '.join(text_of(each, sign) for each in value)}]"
    if value is None or isinstance(value, str):
        return value or sign.none
    return number(value)


def lesson_view(lesson: Lesson, sign: Signs, *, interrupted: bool = False) -> Iterator[Block]:
    """Yield all steps that were played, and the number of right predictions."""
    for each in lesson.steps:
        yield from step_view(each.step, sign)
        yield Paragraph()
        yield from result_view(each, sign)
        yield Paragraph()
    made = [each.predicted for each in lesson.steps if each.predicted is not None]
    text = "Interrupted." if interrupted else f"{plural(len(lesson.steps), 'step')} played."
    if made:
        text += f" Predicted {sum(made)} of {len(made)} right."
    if lesson.following:
        text += f" Continue with distdemo learn {lesson.following}."
    elif lesson.steps and lesson.steps[-1].step.name == NAMES[-1]:
        text += " Next, the exercises: distdemo learn --write FOLDER."
    ended = not (lesson.following or interrupted)
    yield Summary(text, ok=(ended or None) if lesson.ok else False)
