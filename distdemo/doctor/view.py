"""Display of ``doctor``: one line per finding, plus explanation and fix for problems."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.doctor.records import TOPICS, DoctorReport, Finding, Level
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.foreign import one_line
from distdemo.view.format import duration
from distdemo.view.tables import heading

STYLES: dict[Level, str] = {
    "broken": colours.WRONG,
    "warning": "yellow",
    "fine": colours.RIGHT,
    "skipped": colours.QUIET,
}
"""Levels, worst first."""


def table(report: DoctorReport, console: Console) -> RenderableType:
    """Return the findings by topic, and the verdict."""
    sign = signs(console)
    parts: list[RenderableType] = []
    for topic, title in TOPICS.items():
        found = [each for each in report.findings if each.topic == topic]
        if found:
            parts += [heading(title), *(_finding(each, sign) for each in found), Text()]
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    footer = f"{report.host}, {duration(report.elapsed_s)}; {versions}"
    parts.append(Text(one_line(footer), style=colours.QUIET))
    return Group(*parts, _verdict(report, sign))


def summary(report: DoctorReport, console: Console) -> RenderableType:
    """Return the problems and the verdict."""
    sign = signs(console)
    wrong = [each for each in report.findings if each.level in ("broken", "warning")]
    return Group(*(_finding(each, sign) for each in wrong), _verdict(report, sign))


def _verdict(report: DoctorReport, sign: Signs) -> Text:
    """Return the counts by level, such as ``1 broken, 2 warnings, 21 fine``."""
    counts = {level: count for level in STYLES if (count := report.count(level))}
    worst: Level = next(iter(counts), "skipped")
    counted = ", ".join(
        f"{count} {level}{'s' if level == 'warning' and count > 1 else ''}"
        for level, count in counts.items()
    )
    text = f"{_mark(worst, sign)} {counted or 'Nothing was checked'}."
    return Text(text, style=STYLES[worst])


def _mark(level: Level, sign: Signs) -> str:
    return {"fine": sign.right, "broken": sign.wrong, "skipped": sign.none}.get(level, "!")


def _finding(finding: Finding, sign: Signs) -> Table:
    """Return the sign and the observation, with explanation and fix below a problem."""
    style = STYLES[finding.level]
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    title = Text(f"{finding.title}: ", style=style)
    seen = Text(f"{one_line(finding.seen)}.", style=style if finding.level == "skipped" else "")
    grid.add_row(Text(_mark(finding.level, sign), style=style), title + seen)
    for name, text in (("Why", finding.why), ("Try", finding.do)):
        if text:
            grid.add_row("", Text(f"{name}: ", style="bold") + Text(one_line(text)))
    return grid
