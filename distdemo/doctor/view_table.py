"""What ``doctor`` found, as people read it: a line for what is fine, more for what is not."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.doctor.records import TOPICS, DoctorReport, Finding, Level, ListenReport
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.frame import heading
from distdemo.view.numbers import duration, plural

SHOWN: tuple[Level, ...] = ("broken", "warning", "fine", "skipped")
STYLES: dict[Level, str] = {
    "fine": colours.RIGHT,
    "warning": "yellow",
    "broken": colours.WRONG,
    "skipped": colours.QUIET,
}


def doctor_table(report: DoctorReport, console: Console, *, quiet: bool = False) -> Group:
    """The findings by topic and the verdict; quiet: those that are not fine, and the verdict."""
    sign = signs(console)
    parts: list[RenderableType] = []
    for topic, title in TOPICS.items():
        found = [each for each in report.findings if each.topic == topic and _shown(each, quiet)]
        if found and not quiet:
            parts.append(heading(title))
        parts += [_finding(each, sign) for each in found]
        if found and not quiet:
            parts.append(Text())
    if not quiet:
        parts.append(Text(_footer(report), style=colours.QUIET))
    return Group(*parts, verdict_line(report, sign))


def verdict_line(report: DoctorReport, sign: Signs) -> Text:
    """Whether anything stands in the way, in one line."""
    worst: Level = next((level for level in SHOWN if report.count(level)), "skipped")
    return Text(f"{mark(worst, sign)} {verdict(report)}", style=STYLES[worst])


def verdict(report: DoctorReport) -> str:
    """``1 broken, 2 warnings, 21 fine, 3 skipped.``: those that there are."""
    names = {"warning": "warnings"}
    counts = [
        f"{count} {level if count == 1 else names.get(level, level)}"
        for level in SHOWN
        if (count := report.count(level))
    ]
    return f"{', '.join(counts) or 'Nothing was looked at'}."


def mark(level: Level, sign: Signs) -> str:
    """The sign of a level."""
    signs_of = {"fine": sign.right, "broken": sign.wrong, "skipped": sign.none}
    return signs_of.get(level, "!")


def listen_table(report: ListenReport, console: Console) -> Group:
    """What ``doctor --listen`` served: a line a visit, and a sum."""
    sign = signs(console)
    lines: list[RenderableType] = []
    for visit in report.visits:
        who = printable(f"{visit.address} {visit.host}".strip())
        moved = f"{_bytes(visit.received)} received, {_bytes(visit.sent)} sent"
        well = visit.end == "done"
        text = f"{sign.right if well else '!'} {who}: {duration(visit.seconds)}, {moved}"
        text += "" if well else f" {sign.dot} {printable(visit.end)}"
        lines.append(Text(text, style=STYLES["fine" if well else "warning"]))
    visits = plural(len(report.visits), "visit")
    stop = "Interrupted: " if report.interrupted else ""
    lines.append(
        Text(
            f"{stop}{visits} in {duration(report.seconds)} at {place(report)}; it is closed again."
        )
    )
    return Group(*lines)


def place(report: ListenReport) -> str:
    """``192.0.2.2:29500``, IPv6 in brackets."""
    address = f"[{report.address}]" if ":" in report.address else report.address
    return f"{address}:{report.port}"


def _shown(finding: Finding, quiet: bool) -> bool:
    return finding.level in ("broken", "warning") or not quiet


def _finding(finding: Finding, sign: Signs) -> Table:
    """The sign and, beside it, a line; where something is wrong, why and what to do below."""
    style = STYLES[finding.level]
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    title = Text(f"{finding.title}: ", style=style)
    seen = Text(f"{printable(finding.seen)}.", style=style if finding.level == "skipped" else "")
    table.add_row(Text(mark(finding.level, sign), style=style), title + seen)
    for name, text in (("Why", finding.why), ("Try", finding.do)):
        if text:
            table.add_row("", Text(f"{name}: ", style="bold") + Text(printable(text)))
    return table


def _footer(report: DoctorReport) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return printable(f"{report.host}, {duration(report.seconds)}; {versions}")


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.3g} MB" if count else "nothing"


def printable(text: str) -> str:
    """One line without what would move the cursor or colour the terminal."""
    flat = " ".join(text.split())
    return "".join(char for char in flat if char.isprintable())
