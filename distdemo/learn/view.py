"""Views of the lesson, of exercises, and of mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import ndiff
from typing import Any

from rich.text import Text

from distdemo.calls.records import Level
from distdemo.calls.text import gap_texts
from distdemo.calls.view import finding_view
from distdemo.learn.catalogue import STEPS, Example
from distdemo.learn.records import (
    ExampleList,
    Lesson,
    LessonFolder,
    MistakeReport,
    Outcomes,
    PlayedStep,
    RankOutcome,
)
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.code import highlighted
from distdemo.view.console import Signs
from distdemo.view.data import rank_cell
from distdemo.view.format import listing, number, plural
from distdemo.view.tables import Cell, Column, Grid

BACKENDS = ("gloo", "mpi")  # in the list of mistakes
KIND_TEXTS = {"hang": "hangs", "abort": "aborts", "error": "error", "wrong": "wrong"}
"""Text of each outcome in the list, the worst first."""
WELCOME = (
    "Each step shows a program and asks for the result. Type your prediction and press Enter: "
    "the program runs on real processes, and you see what every rank holds. Enter alone runs it "
    "without a prediction, ? shows how to type an answer, back returns to the previous step, and q "
    "stops."
)
KEYS = "back returns to the previous step, and q stops."
LEGEND = (
    "wrong: a wrong result without an error; aborts: the process ends without a traceback; "
    "right by luck: right here, but not everywhere.\n"
    "Sanitizer: the kind of finding when distdemo compares the calls of all ranks. The default "
    "group, in its reports, is all ranks.\n"
    "distdemo mistakes NAME runs one; distdemo learn --write DIR writes them as exercises."
)
SEEN: dict[Level, str] = {"error": "found", "warn": "warned of", "note": "noted"}
"""Word for the most severe level of the findings, the first that there is."""
STOPPED = "Hanging ranks were stopped. torch itself would wait 30 minutes, or forever."
NOTHING = "No finding: all ranks make the same calls in the same order."


# ------------------------------------------------------------------------- programs and outcomes


def program_text(example: Example, sign: Signs) -> Text:
    """Return the numbered lines of a program, with an arrow at the wrong ones."""
    shown = []
    lines = highlighted(example.program).split("\n")
    for count, line in enumerate(lines, 1):
        is_wrong = count in example.wrong_lines
        mark = f"{sign.arrow} " if is_wrong else "  " if example.wrong_lines else ""
        shown.append(_numbered(f"{mark}{count:>2}  ", line, colours.WRONG if is_wrong else ""))
    return Text("\n").join(shown)


def _numbered(start: str, line: Text, style: str) -> Text:
    """Return a line of code after its number; in one style, unless that is empty."""
    text = Text(start + line.plain, style) if style else Text.assemble(start, line)
    text.rstrip()
    return text


def repaired_text(mistake: Example) -> Text:
    """Return the numbered lines of a repaired program, and those that it no longer has."""
    shown = []
    count = 0
    for line in ndiff(mistake.program.splitlines(), mistake.repaired.splitlines()):
        style = {"-": colours.WRONG, "+": colours.RIGHT}.get(line[0], "")
        count += line[0] in " +"
        if line[0] != "?":
            start = f"{line[:2]}{'' if line[0] == '-' else count:>2}  "
            shown.append(_numbered(start, highlighted(line[2:]), style))
    return Text("\n").join(shown)


def value_text(value: Any, sign: Signs) -> str:
    """Format a value as tables of tensors do: ``[10 11]``."""
    if isinstance(value, list):
        return f"[{' '.join(value_text(item, sign) for item in value)}]"
    if value is None or isinstance(value, str):
        return value or sign.none
    return number(value)


def ending_text(outcome: RankOutcome) -> str:
    """Return how a rank ended that returned nothing."""
    verb = {"hang": "hangs ", "abort": "aborts: "}.get(outcome.kind, "")
    return f"{verb}{outcome.what}".rstrip()


def rank_grid(names: Iterable[str], rows: Iterable[Sequence[Cell]]) -> Grid:
    """Return a table with a row per rank."""
    grid = Grid([Column("Rank", right=True), *(Column(name, folds=True) for name in names)])
    for rank, cells in enumerate(rows):
        grid.rows.append([rank_cell(rank), *cells])
    return grid


# ------------------------------------------------------------------------------------ the lesson


def steps_view(record: ExampleList, _: Signs) -> Iterator[Block]:
    """Yield one row per step."""
    grid = Grid([Column("", right=True), Column("Name"), Column("Step", folds=True)])
    grid.rows += [[str(step.number), step.name, step.title] for step in record.examples]
    yield grid
    yield Summary(f"{plural(len(record.examples), 'step')}.", ok=None)
    yield Paragraph(
        "In a terminal, distdemo learn starts with the first one, and distdemo learn NAME or "
        "NUMBER with another.",
        colours.QUIET,
    )


def welcome(_: Signs) -> Iterator[Block]:
    """Yield what a learner reads first."""
    yield Paragraph(WELCOME)


def gap(_: Signs) -> Iterator[Block]:
    """Yield an empty line."""
    yield Paragraph()


def step_view(step: Example, sign: Signs) -> Iterator[Block]:
    """Yield what a learner reads before a step runs."""
    place = f"Step {step.number} of {len(STEPS)}"
    yield Heading(f" {sign.dot} ".join((place, step.name, plural(step.world_size, "rank"))))
    for text in (step.title, "", step.text, ""):
        yield Paragraph(text)
    yield Paragraph(program_text(step, sign), verbatim=True)
    yield Paragraph()
    yield Paragraph(f"{step.question} ({step.form})", "bold")


def help_view(step: Example, _: Signs) -> Iterator[Block]:
    """Yield the form of the answer."""
    yield Paragraph(f"Type {step.form}. Enter alone runs the program, {KEYS}", colours.QUIET)


def go_on_view(_: Signs) -> Iterator[Block]:
    """Yield what can be typed between two steps."""
    yield Paragraph(f"Enter alone continues, {KEYS}", colours.QUIET)


def result_view(played: PlayedStep, sign: Signs) -> Iterator[Block]:
    """Yield what every rank holds, the verdict on the prediction, and the explanation."""
    step = played.step
    value = step.expected[0]
    names = list(value) if isinstance(value, dict) else ["Returns"]
    rows = [_cells(outcome, len(names), sign) for outcome in played.outcomes]
    right = played.predicted
    mark, style = (sign.right, colours.RIGHT) if right else (sign.wrong, colours.UNSURE)
    if right is not None:
        names.append("Prediction")
        rows[step.rank].append(Text(f"{mark} {played.prediction}", style))
    yield rank_grid(names, rows)
    if not played.ok:
        problem = "The program did not run as documented."
        text = f"{sign.wrong} {step.name}: {problem}"
        yield Paragraph(text, colours.WRONG, is_problem=True)
    if right is not None:
        answer = f"Not quite. Answer: {value_text(played.answer, sign)}."
        yield Paragraph(f"{mark} {'Right.' if right else answer}", style)
    elif played.prediction:
        yield Paragraph(f"{played.prediction} isn't counted: type {step.form}.")
    yield Paragraph(step.why)
    yield Paragraph()
    yield Paragraph("Try in another terminal:", colours.QUIET)
    yield Paragraph("\n".join(f"  {command}" for command in step.commands), verbatim=True)


def _cells(outcome: RankOutcome, count: int, sign: Signs) -> list[Cell]:
    """Return the parts of a rank's value, or how it ended and empty cells."""
    if outcome.kind not in ("right", "wrong"):
        return [ending_text(outcome), *[""] * (count - 1)]
    value = outcome.value
    parts = value.values() if isinstance(value, dict) else [value]
    return [value_text(part, sign) for part in parts]


def lesson_view(lesson: Lesson, sign: Signs) -> Iterator[Block]:
    """Yield all steps that were played, and the number of right predictions."""
    for played in lesson.steps:
        yield from step_view(played.step, sign)
        yield Paragraph()
        yield from result_view(played, sign)
        yield Paragraph()
    predictions = [played.predicted for played in lesson.steps if played.predicted is not None]
    right = f", {sum(predictions)} predicted right" if predictions else ""
    text = f"{plural(len(lesson.steps), 'step')} played{right}."
    if lesson.following:
        text += f" Continue with distdemo learn {lesson.following}."
    elif lesson.steps and lesson.steps[-1].step.number == len(STEPS):
        text += " Next, the exercises: distdemo learn --write FOLDER."
    yield Summary(text, lesson.ok if lesson.steps else None)


# ------------------------------------------------------------------------------------- exercises


def folder_view(record: LessonFolder, _: Signs) -> Iterator[Block]:
    """Yield the folder and what was written to it."""
    counts = {"exercise": record.exercises, "mistake": record.mistakes, "slide": record.slides}
    parts = [plural(count, name) for name, count in counts.items() if count]
    parts += ["the notebook", *["solutions"] * record.solutions]
    yield Summary(f"{record.folder}: {listing(parts, 'and')}. Start with README.md.")
    if record.slides and not any(file.endswith(".png") for file in record.files):
        text = "Slides are SVG only. For PNG, too: pip install 'distdemo[plot]'."
        yield Paragraph(text, colours.QUIET)


# -------------------------------------------------------------------------------------- mistakes


def mistakes_view(record: ExampleList, _: Signs) -> Iterator[Block]:
    """Yield one row per mistake."""
    columns = [Column("Name"), Column("Mistake", folds=True), Column("Sanitizer")]
    grid = Grid([*columns, *(Column(name, folds=True) for name in BACKENDS)])
    for mistake in record.examples:
        row: list[Cell] = [mistake.name, mistake.title, mistake.finding or "nothing"]
        for backend in BACKENDS:
            usual = [kinds[0] for kinds in mistake.documented(backend)]
            texts = [text for kind, text in KIND_TEXTS.items() if kind in usual]
            row.append(", ".join(texts) or "right by luck")
        grid.rows.append(row)
    yield grid
    yield Summary(f"{plural(len(record.examples), 'mistake')}.", ok=None)
    yield Paragraph(LEGEND, colours.QUIET)


def report_view(report: MistakeReport, sign: Signs, *, explain: bool = False) -> Iterator[Block]:
    """Yield the program, its outcomes, the sanitizer's report, the repair and the verdict.

    Args:
        report: Report of a mistake.
        sign: Signs of the terminal.
        explain: Add the explanation of the cause.
    """
    mistake = report.mistake
    size = plural(mistake.world_size, "rank")
    yield Heading(f" {sign.dot} ".join((mistake.name, size, report.backend)))
    yield Paragraph(f"{mistake.title}.")
    yield Paragraph()
    yield Paragraph(program_text(mistake, sign), verbatim=True)
    yield Paragraph(f"{sign.arrow} marks the mistake.", colours.QUIET)
    yield Paragraph()
    yield Heading("What happens")
    yield _outcomes(report.outcomes, sign)
    if any(outcome.kind == "hang" for outcome in report.outcomes):
        yield Paragraph(STOPPED, colours.QUIET)
    yield Paragraph()
    yield Heading("Report of the sanitizer")
    for finding in report.findings:
        yield from finding_view(finding)
    for warning in report.warnings:
        yield from finding_view(warning)
    unseen = gap_texts(report.stopped, report.gaps)
    for text in unseen:
        yield Paragraph(text)
    if not (report.findings or report.warnings or unseen):
        yield Paragraph(NOTHING)
    yield Paragraph()
    yield Heading("Repaired")
    yield Paragraph(repaired_text(mistake), verbatim=True)
    yield _outcomes(report.repaired, sign)
    yield Paragraph()
    if explain:
        yield Heading("Why")
        yield Paragraph(mistake.why)
        if mistake.link:
            yield Paragraph(f"Seen in practice: {mistake.link}")
        yield Paragraph()
    levels = {finding.level for finding in (*report.findings, *report.warnings)}
    seen = next((word for level, word in SEEN.items() if level in levels), "not found")
    text = f"{seen} by the sanitizer, correct when repaired." if report.ok else ""
    text += " ".join(report.problems)
    yield Summary(f"{mistake.name} over {report.backend}: {text}", ok=report.ok)
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield Paragraph(versions, colours.QUIET, is_detail=True)


def _outcomes(outcomes: Outcomes, sign: Signs) -> Grid:
    """Return the outcome of each rank."""
    return rank_grid(["Outcome"], ([_marked(outcome, sign)] for outcome in outcomes))


def _marked(outcome: RankOutcome, sign: Signs) -> Text:
    """Return the outcome of a rank, marked as right or wrong."""
    if outcome.kind == "right":
        return Text(f"{sign.right} {outcome.value}", style=colours.RIGHT)
    if outcome.kind == "lost":
        return Text(outcome.what)
    text = ending_text(outcome)
    if outcome.kind == "wrong":
        text = f"{outcome.value}, not {outcome.expected}: no error"
    return Text(f"{sign.wrong} {text}", style=colours.WRONG)
