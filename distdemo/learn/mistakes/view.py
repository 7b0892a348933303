"""Views of mistakes: the list and a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from distdemo.learn.mistakes.catalogue import BACKENDS
from distdemo.learn.mistakes.records import (
    Line,
    MistakeList,
    MistakeReport,
    RankOutcome,
)
from distdemo.sanitizer.view import finding_view
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import listing, plural
from distdemo.view.tables import Column, Grid

LONGEST = 72  # most characters of an exception in a cell
KIND_TEXTS = {"hang": "hangs", "abort": "aborts", "error": "error", "wrong": "wrong"}
"""Text of each outcome in the list, the worst first."""
MARKS = {"both": (" ", ""), "wrong": ("-", colours.WRONG), "right": ("+", colours.RIGHT)}
"""Mark and style of a line of the repaired program, by its role."""
LEGEND = (
    "wrong: a wrong result without an error; aborts: the process ends without a traceback; "
    "right by luck: right here, but not everywhere.\n"
    "Sanitizer: the kind of finding when distdemo compares the calls of all ranks. The default "
    "group, in its reports, is all ranks.\n"
)
MORE = "distdemo mistakes NAME runs one; distdemo learn --write DIR writes them as exercises."
STOPPED = "Hanging ranks were stopped. torch itself would wait 30 minutes, or forever."
NOTHING = "No finding: all ranks make the same calls in the same order."


def list_view(record: MistakeList, _: Signs) -> Iterator[Block]:
    """Yield one row per mistake."""
    columns = [Column("Name"), Column("Mistake", folds=True), Column("Sanitizer")]
    grid = Grid([*columns, *(Column(name, folds=True) for name in BACKENDS)])
    for each in record.mistakes:
        outcomes = [_summary(each.documented(name)) for name in BACKENDS]
        grid.rows.append([each.name, each.title, each.finding or "nothing", *outcomes])
    yield grid
    yield Summary(f"{plural(len(record.mistakes), 'mistake')}.", ok=None)
    yield Paragraph(LEGEND + MORE, colours.QUIET)


def _summary(documented: list[list[str]]) -> str:
    """Return the outcomes of all ranks in a few words."""
    usual = [each[0] for each in documented]
    return ", ".join(text for kind, text in KIND_TEXTS.items() if kind in usual) or "right by luck"


def report_view(report: MistakeReport, sign: Signs, *, explain: bool = False) -> Iterator[Block]:
    """Yield the program, its outcomes, the sanitizer's report, the repair and the verdict.

    Args:
        report: Report of a mistake.
        sign: Signs of the terminal.
        explain: Add the explanation of the cause.
    """
    mistake, trials = report.mistake, report.trials
    title = (mistake.name, plural(mistake.world_size, "rank"), *(each.backend for each in trials))
    yield Heading(f" {sign.dot} ".join(title))
    yield Paragraph(f"{mistake.title}.")
    yield Paragraph()
    yield Paragraph(_program(mistake.program, sign), verbatim=True)
    yield Paragraph(f"{sign.arrow} marks the mistake.", colours.QUIET)
    yield Paragraph()
    yield Heading("What happens")
    yield _outcomes({each.backend: each.outcomes for each in trials}, sign)
    if any(outcome.kind == "hang" for each in trials for outcome in each.outcomes):
        yield Paragraph(STOPPED, colours.QUIET)
    yield Paragraph()
    for findings in dict.fromkeys(each.findings for each in trials):
        over = [each.backend for each in trials if each.findings == findings]
        where = "" if len(over) == len(trials) else f" over {listing(over)}"
        yield Heading(f"Report of the sanitizer{where}")
        for each in findings:
            yield from finding_view(each, warning=each.kind == "shift")
        if not findings:
            yield Paragraph(NOTHING)
        yield Paragraph()
    yield Heading("Repaired")
    yield Paragraph(_repaired(mistake.program), verbatim=True)
    yield _outcomes({each.backend: each.repaired for each in trials}, sign)
    if explain:
        yield Paragraph()
        yield Heading("Why")
        yield Paragraph(mistake.why)
        if mistake.link:
            yield Paragraph(f"Seen in practice: {mistake.link}")
        yield Paragraph()
    yield _verdict(report)
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield Paragraph(versions, colours.QUIET)


def _verdict(report: MistakeReport) -> Summary:
    mistake, over = report.mistake, [each.backend for each in report.trials]
    if report.problems:
        return Summary(f"{mistake.name}. {' '.join(report.problems)}", ok=False)
    seen = {"": "not found", "shift": "warned of"}.get(mistake.finding, "found")
    behaved = "behaved as documented, " * all(map(mistake.documented, over))
    found = f"{behaved}{seen} by the sanitizer, correct when repaired."
    return Summary(f"{mistake.name} over {listing(over)}: {found}")


def _program(lines: Sequence[Line], sign: Signs) -> Text:
    """Return the program with the mistake, numbered, with its wrong lines marked."""
    shown = []
    broken = [line for line in lines if line.role != "right"]
    for number, line in enumerate(broken, start=1):
        wrong = line.role == "wrong"
        text = f"{sign.arrow if wrong else ' '} {number:>2}  {line.text}".rstrip()
        shown.append(Text(text, style=colours.WRONG if wrong else ""))
    return Text("\n").join(shown)


def _repaired(lines: Sequence[Line]) -> Text:
    """Return the whole repaired program, numbered; removed lines have no number."""
    shown, number = [], 0
    for line in lines:
        number += line.role != "wrong"
        mark, style = MARKS[line.role]
        text = f"{mark} {'' if line.role == 'wrong' else number:>2}  {line.text}".rstrip()
        shown.append(Text(text, style=style))
    return Text("\n").join(shown)


def _outcomes(by_backend: Mapping[str, tuple[RankOutcome, ...]], sign: Signs) -> Grid:
    """Return the outcome of each rank, the backends side by side."""
    grid = Grid([Column("Rank", right=True), *(Column(name, folds=True) for name in by_backend)])
    for rank, outcomes in enumerate(zip(*by_backend.values(), strict=True)):
        name = Text(str(rank), style=colours.of_rank(rank))
        grid.rows.append([name, *(_cell(each, sign) for each in outcomes)])
    return grid


def _cell(outcome: RankOutcome, sign: Signs) -> Text:
    if outcome.kind == "right":
        return Text(f"{sign.right} {outcome.value}", style=colours.RIGHT)
    what = outcome.what
    if len(what) > LONGEST:
        what = f"{what[:LONGEST].rpartition(' ')[0]} {sign.more}"
    words = {
        "wrong": f"{outcome.value}, not {outcome.expected}: no error",
        "hang": f"hangs {what}".rstrip(),
        "abort": f"aborts: {what}",
    }
    style = "" if outcome.kind == "lost" else colours.WRONG
    mark = "" if outcome.kind == "lost" else f"{sign.wrong} "
    return Text(f"{mark}{words.get(outcome.kind, what)}", style=style)
