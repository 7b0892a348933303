"""The mistakes as people read them: the list, one of them in full, and what was written."""

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
LONGEST = 72  # characters of an exception's text in a cell
HAPPENS = {"hang": "hangs", "abort": "aborts", "error": "error", "wrong": "wrong"}
"""What the list says of a rank's end, the worst first."""
LEGEND = "wrong: a wrong result, and no error. Sanitizer: the kind of what it finds.\n"
MORE = "distdemo mistakes NAME runs one; distdemo mistakes --exercises DIR writes them all."
STOPPED = "What hangs was stopped here. torch itself waits for 30 minutes, or for ever."
NOTHING = "It finds nothing: all ranks make the same calls, in the same order."


def table(record: Record, console: Console, *, explain: bool = False) -> Group:
    """The whole report.

    Args:
        record: of the command.
        console: that it will be printed on.
        explain: say why it happens, too.
    """
    if isinstance(record, MistakeReport):
        return _report(record, console, explain=explain)
    if isinstance(record, ExerciseFolder):
        names = Text("\n".join(f"  {name}" for name in record.files))
        return Group(heading(record.folder), names, summary(record, console))
    listed = fitting(console, lambda _: _list(record.mistakes))
    return Group(listed, summary(record, console), Text(LEGEND + MORE, style=colours.QUIET))


def summary(record: Record, console: Console) -> Text:
    """The verdict, in a line."""
    sign = signs(console)
    if isinstance(record, MistakeList):
        return Text(f"{plural(len(record.mistakes), 'mistake')}.")
    if isinstance(record, ExerciseFolder):
        line = f"{sign.right} {plural(len(record.files), 'file')} in {record.folder}: "
        return Text(f"{line}begin with README.md.", style=colours.RIGHT)
    problems = [f"Over {each.backend}: {text}" for each in record.trials for text in each.problems]
    name = record.mistake.name
    if problems:
        return Text(f"{sign.wrong} {name}. {' '.join(problems)}", style=colours.WRONG)
    seen = {"": "not seen", "shift": "warned of"}.get(record.mistake.finding, "found")
    over = listing([each.backend for each in record.trials])
    known = all(record.mistake.said(each.backend) for each in record.trials)
    happened = "happened as documented, " if known else ""
    line = (
        f"{sign.right} {name} over {over}: {happened}{seen} by the sanitizer, right when repaired."
    )
    return Text(line, style=colours.RIGHT)


def _list(mistakes: Sequence[Mistake]) -> Grid:
    columns = [Column("Name"), Column("What is wrong", folds=True), Column("Sanitizer")]
    grid = Grid([*columns, *(Column(name, folds=True) for name in BACKENDS)])
    for each in mistakes:
        happens = [_happens(each.said(name)) for name in BACKENDS]
        grid.rows.append([each.name, each.title, each.finding or "nothing", *happens])
    return grid


def _happens(said: list[list[str]]) -> str:
    """What comes of it on all ranks, in a few words."""
    usual = [each[0] for each in said]
    return ", ".join(text for end, text in HAPPENS.items() if end in usual) or "right by luck"


def _report(report: MistakeReport, console: Console, *, explain: bool) -> Group:
    mistake, trials, sign = report.mistake, report.trials, signs(console)
    title = (mistake.name, plural(mistake.world_size, "rank"), *(each.backend for each in trials))
    hangs = any(end.end == "hang" for each in trials for end in each.ends)
    said: dict[str, list[str]] = {}
    for each in trials:
        text = "\n".join(map(_told, each.findings)) or NOTHING
        said.setdefault(text, []).append(each.backend)
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
    for text, names in said.items():
        over = "" if len(said) == 1 else f" over {listing(names)}"
        parts += [heading(f"What the sanitizer says{over}"), Text(text), Text()]
    parts += [
        heading("Repaired"),
        *_repair(report.program),
        _ends({each.backend: each.repaired for each in trials}, console),
    ]
    if explain:
        parts += [Text(), heading("Why"), Text(mistake.why)]
        parts += [Text(f"Somebody lost a day on it: {mistake.link}")] if mistake.link else []
        parts.append(Text())
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return Group(*parts, summary(report, console), Text(versions, style=colours.QUIET))


def _program(lines: Sequence[Line], sign: Signs) -> list[Text]:
    """The program with the mistake, its lines numbered, the wrong ones marked."""
    shown = []
    broken = [line for line in lines if line.role != "right"]
    for number, line in enumerate(broken, start=1):
        wrong = line.role == "wrong"
        text = f"{sign.arrow if wrong else ' '} {number:>2}  {line.text}".rstrip()
        shown.append(Text(text, style=colours.WRONG if wrong else ""))
    return shown


def _repair(lines: Sequence[Line]) -> list[Text]:
    """The wrong lines, and those that take their places; each with its number in its program."""
    shown, numbers = [], {"wrong": 0, "right": 0}
    for line in lines:
        for version in numbers:
            numbers[version] += line.role in ("both", version)
        if line.role != "both":
            sign, style = ("-", colours.WRONG) if line.role == "wrong" else ("+", colours.RIGHT)
            shown.append(Text(f"{sign} {numbers[line.role]:>2}  {line.text}", style=style))
    return shown


def _told(finding: Finding) -> str:
    """As ``distdemo run`` tells it."""
    what = f"Warning: {finding.what}" if finding.kind == "shift" else finding.what
    return "\n".join(filter(None, (what, reason(finding), finding.rule)))


def _ends(by_backend: dict[str, tuple[RankEnd, ...]], console: Console) -> RenderableType:
    """How each rank ended, the backends side by side."""
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
