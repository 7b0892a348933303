"""Views of mistakes: the list, a report, and written exercises."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.mistakes.catalogue import BACKENDS
from distdemo.mistakes.records import (
    ExerciseFolder,
    Line,
    Mistake,
    MistakeList,
    MistakeReport,
    RankEnd,
)
from distdemo.sanitizer.records import Finding
from distdemo.sanitizer.text import reason
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.format import listing, plural
from distdemo.view.tables import Cell, Column, Grid, fitting, heading

Record = MistakeList | MistakeReport | ExerciseFolder
LONGEST = 72  # most characters of an exception in a cell
HAPPENS = {"hang": "hangs", "abort": "aborts", "error": "error", "wrong": "wrong"}
"""Text of each outcome in the list, the worst first."""
LEGEND = "wrong: a wrong result without an error. Sanitizer: the kind of its finding.\n"
MORE = "distdemo mistakes NAME runs one; distdemo mistakes --exercises DIR writes them all."
STOPPED = "Hanging ranks were stopped. torch itself would wait 30 minutes, or forever."
NOTHING = "No finding: all ranks make the same calls in the same order."


def table(record: Record, console: Console, *, explain: bool = False) -> Group:
    """Return the report of a record.

    Args:
        record: Record of the command.
        console: Console to print on.
        explain: Add the explanation of the cause.
    """
    if isinstance(record, MistakeReport):
        return _report(record, console, explain=explain)
    if isinstance(record, ExerciseFolder):
        names = Text("\n".join(f"  {name}" for name in record.files))
        return Group(heading(record.folder), names, summary(record, console))
    listed = fitting(console, lambda _: _list(record.mistakes))
    return Group(listed, summary(record, console), Text(LEGEND + MORE, style=colours.QUIET))


def summary(record: Record, console: Console) -> Text:
    """Return the verdict in one line."""
    sign = signs(console)
    if isinstance(record, MistakeList):
        return Text(f"{plural(len(record.mistakes), 'mistake')}.")
    if isinstance(record, ExerciseFolder):
        line = f"{sign.right} {plural(len(record.files), 'file')} in {record.folder}: "
        return Text(f"{line}start with README.md.", style=colours.RIGHT)
    problems = [f"Over {each.backend}: {text}" for each in record.trials for text in each.problems]
    name = record.mistake.name
    if problems:
        return Text(f"{sign.wrong} {name}. {' '.join(problems)}", style=colours.WRONG)
    seen = {"": "not found", "shift": "warned of"}.get(record.mistake.finding, "found")
    over = listing([each.backend for each in record.trials])
    known = all(record.mistake.documented(each.backend) for each in record.trials)
    behaved = "behaved as documented, " if known else ""
    found = f"{behaved}{seen} by the sanitizer, correct when repaired."
    return Text(f"{sign.right} {name} over {over}: {found}", style=colours.RIGHT)


def _list(mistakes: Sequence[Mistake]) -> Grid:
    columns = [Column("Name"), Column("Mistake", folds=True), Column("Sanitizer")]
    grid = Grid([*columns, *(Column(name, folds=True) for name in BACKENDS)])
    for each in mistakes:
        happens = [_happens(each.documented(name)) for name in BACKENDS]
        grid.rows.append([each.name, each.title, each.finding or "nothing", *happens])
    return grid


def _happens(documented: list[list[str]]) -> str:
    """Return the outcomes of all ranks in a few words."""
    usual = [each[0] for each in documented]
    return ", ".join(text for end, text in HAPPENS.items() if end in usual) or "right by luck"


def _report(report: MistakeReport, console: Console, *, explain: bool) -> Group:
    mistake, trials, sign = report.mistake, report.trials, signs(console)
    title = (mistake.name, plural(mistake.world_size, "rank"), *(each.backend for each in trials))
    hangs = any(end.end == "hang" for each in trials for end in each.ends)
    reports: dict[str, list[str]] = {}
    for each in trials:
        text = "\n".join(map(_finding_text, each.findings)) or NOTHING
        reports.setdefault(text, []).append(each.backend)
    parts: list[RenderableType] = [
        heading(f" {sign.dot} ".join(title)),
        Text(f"{mistake.title}."),
        Text(),
        *_program(report.program, sign),
        Text(),
        heading("What happens"),
        _ends({each.backend: each.ends for each in trials}, console),
        *([Text(STOPPED, style=colours.QUIET)] if hangs else []),
        Text(),
    ]
    for text, names in reports.items():
        over = "" if len(reports) == 1 else f" over {listing(names)}"
        parts += [heading(f"Report of the sanitizer{over}"), Text(text), Text()]
    parts += [
        heading("Repaired"),
        *_repair(report.program),
        _ends({each.backend: each.repaired for each in trials}, console),
    ]
    if explain:
        parts += [Text(), heading("Why"), Text(mistake.why)]
        parts += [Text(f"Seen in practice: {mistake.link}")] if mistake.link else []
        parts.append(Text())
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return Group(*parts, summary(report, console), Text(versions, style=colours.QUIET))


def _program(lines: Sequence[Line], sign: Signs) -> list[Text]:
    """Return the program with the mistake, numbered, with its wrong lines marked."""
    shown = []
    broken = [line for line in lines if line.role != "right"]
    for number, line in enumerate(broken, start=1):
        wrong = line.role == "wrong"
        text = f"{sign.arrow if wrong else ' '} {number:>2}  {line.text}".rstrip()
        shown.append(Text(text, style=colours.WRONG if wrong else ""))
    return shown


def _repair(lines: Sequence[Line]) -> list[Text]:
    """Return the wrong lines and their replacements, with their line numbers."""
    shown, numbers = [], {"wrong": 0, "right": 0}
    for line in lines:
        for version in numbers:
            numbers[version] += line.role in ("both", version)
        if line.role != "both":
            sign, style = ("-", colours.WRONG) if line.role == "wrong" else ("+", colours.RIGHT)
            shown.append(Text(f"{sign} {numbers[line.role]:>2}  {line.text}", style=style))
    return shown


def _finding_text(finding: Finding) -> str:
    """Return the text of a finding, as ``distdemo run`` prints it."""
    what = f"Warning: {finding.what}" if finding.kind == "shift" else finding.what
    return "\n".join(filter(None, (what, reason(finding), finding.rule)))


def _ends(by_backend: dict[str, tuple[RankEnd, ...]], console: Console) -> RenderableType:
    """Return the outcome of each rank, the backends side by side."""
    columns = [Column("Rank", right=True), *(Column(name, folds=True) for name in by_backend)]
    grid = Grid(columns)
    for rank, ends in enumerate(zip(*by_backend.values(), strict=True)):
        cells: list[Cell] = [Text(str(rank), style=colours.of_rank(rank))]
        grid.rows.append([*cells, *(_cell(each, signs(console)) for each in ends)])
    return fitting(console, lambda _: grid)


def _cell(end: RankEnd, sign: Signs) -> Text:
    if end.end == "right":
        return Text(f"{sign.right} {end.value}", style=colours.RIGHT)
    what = end.what
    if len(what) > LONGEST:
        what = f"{what[:LONGEST].rpartition(' ')[0]} {sign.more}"
    words = {
        "wrong": f"{end.value}, not {end.expected}: no error",
        "hang": f"hangs {what}".rstrip(),
        "abort": f"aborts: {what}",
    }
    style = "" if end.end == "lost" else colours.WRONG
    mark = "" if end.end == "lost" else f"{sign.wrong} "
    return Text(f"{mark}{words.get(end.end, what)}", style=style)
