"""Report on a recording."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.sanitizer.records import Finding, Recording
from distdemo.sanitizer.text import calls_text, rank_label, reason, stopped_text
from distdemo.view import colours
from distdemo.view.console import signs
from distdemo.view.format import plural
from distdemo.view.tables import heading


def table(report: Recording, console: Console, *, calls: bool = False) -> Group:
    """Return the findings and, on request, the calls."""
    title = (report.folder, plural(report.world_size, "rank"), *report.hosts)
    parts: list[RenderableType] = [heading(f" {signs(console).dot} ".join(title))]
    if calls:
        parts.append(Text(calls_text(report.calls)))
    parts += [_finding_text(each) for each in (*report.warnings, *report.findings)]
    for what, ranks in (("left no notes", report.absent), ("did not end", report.unended)):
        if ranks:
            parts.append(Text(f"{rank_label(ranks).capitalize()} {what}."))
    parts.append(summary(report, console))
    return Group(*parts)


def summary(report: Recording, console: Console) -> Text:
    """Return the verdict as one line."""
    sign = signs(console)
    if report.findings:
        return Text(f"{sign.wrong} {report.findings[0].what}", style=colours.WRONG)
    made = sum(each.count * len(each.ranks) for each in report.calls)
    line = f"No errors in {plural(made, 'call')}."
    if report.stopped:
        return Text(f"{sign.wrong} {stopped_text(report.stopped)}", style=colours.WRONG)
    if not report.ok:
        return Text(f"{sign.wrong} {plural(len(report.warnings), 'warning')}.", style=colours.WRONG)
    return Text(f"{sign.right} {line}", style=colours.RIGHT)


def _finding_text(finding: Finding) -> Text:
    kind = "Warning: " if finding.kind == "shift" else ""
    return Text("\n".join(filter(None, (kind + finding.what, reason(finding), finding.rule))))
