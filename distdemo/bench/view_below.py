"""What stands under a measurement's tables: how it was done, and what else was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.bench.old_records import BenchReport
from distdemo.bench.view_limits import limit_lines
from distdemo.bench.view_marks import marks, spelled
from distdemo.bench.view_skew import skew_parts
from distdemo.bench.view_verdicts import overlap_lines, unsteady_line, verdict_lines
from distdemo.bench.yardsticks import BARRIER, PAGE, Alignment, Harness, Setup
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.frame import heading
from distdemo.view.grid import NARROW, Column, Grid, fitting
from distdemo.view.numbers import duration, plural

WAYS = {
    PAGE: "through a page of shared memory",
    BARRIER: "through the group's own barrier",
}


def below(report: BenchReport, console: Console) -> Iterator[RenderableType]:
    """Verdicts, skew, limits, harness and notes; each only where there is something to say."""
    sign = signs(console)
    yield from _titled("Is this normal?", list(verdict_lines(report, sign)), console)
    yield from _titled("Overlap", list(overlap_lines(report)), console)
    yield from skew_parts(report, console)
    if report.spec.profile:
        yield from _profile(report, console)
    yield from _facts(report, console)
    unsteady = unsteady_line(report, sign)
    yield from [unsteady] if unsteady else []
    yield from (Text(spelled(note, sign)) for note in report.notes)


def _titled(
    title: str, lines: Sequence[RenderableType], console: Console
) -> Iterator[RenderableType]:
    if lines:
        yield Text()
        yield heading(title)
        yield from (hanging(line, console) for line in lines)


def hanging(line: RenderableType, console: Console) -> RenderableType:
    """With a dot before it; its further lines are set in."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(Text("-" if signs(console).dot == "|" else "•", style=colours.QUIET), line)
    return table


def _facts(report: BenchReport, console: Console) -> Iterator[RenderableType]:
    """How each backend was measured, and what it is held against."""
    pairs = [*_merged("Measured", report, _how), *_merged("Limits", report, limit_lines)]
    if pairs:
        yield Text()
        yield _listed(pairs, console)


def _merged(
    name: str, report: BenchReport, tell: Callable[[Setup], Iterator[str]]
) -> Iterator[tuple[str, str]]:
    """What is to be told of each backend; what is the same for all is told once."""
    found: dict[str, list[str]] = {}
    for backend, setup in report.setups.items():
        for text in tell(setup):
            found.setdefault(text, []).append(backend)
    for text, backends in found.items():
        lead = "" if len(backends) == len(report.setups) else f"{', '.join(backends)}: "
        yield name, lead + text


def _listed(pairs: Sequence[tuple[str, str]], console: Console) -> RenderableType:
    """The names at the left, each once; on a narrow terminal above what they name."""
    sign = signs(console)
    lines: list[RenderableType] = []
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold", style=colours.QUIET)
    before = ""
    for name, text in pairs:
        own = name if name != before else ""
        table.add_row(own, spelled(text, sign))
        lines += [Text(own, style="bold")] if own else []
        lines.append(hanging(Text(spelled(text, sign), style=colours.QUIET), console))
        before = name
    return table if console.width >= NARROW else Group(*lines)


def _how(setup: Setup) -> Iterator[str]:
    if setup.launches:
        count = "1 launch" if setup.launches == 1 else f"{setup.launches:,} launches"
        ranks = plural(setup.world.world_size, "rank")
        purpose = ", the first to verify and to calibrate" if setup.launches > 1 else ""
        yield f"in {count} of {ranks}{purpose}"
    if setup.alignment is not None:
        yield _aligned(setup.alignment)
    if setup.harness is not None:
        yield _harness(setup.harness)


def _aligned(alignment: Alignment) -> str:
    """How ranks start together, and what that costs."""
    way = WAYS.get(alignment.way, alignment.way)
    text = f"ranks start each iteration together {way}: {duration(alignment.seconds)} that is"
    text += " not timed"
    if alignment.spread is None:
        return f"{text}; their clocks can't be compared"
    p99 = alignment.spread_p99
    end = "" if p99 is None else f", p99 {duration(p99)}"
    return f"{text}; the last one starts {duration(alignment.spread)} after the first{end}"


def _harness(harness: Harness) -> str:
    return (
        f"the loop adds {duration(harness.inside)} to each time, and takes "
        f"{duration(harness.outside)} an iteration beside it"
    )


def _profile(report: BenchReport, console: Console) -> Iterator[RenderableType]:
    """What an empty op costs in the loop."""
    names = ("Backend", "Added to\na time", "Beside it", "Aligning", "Iterations")
    grid = Grid([Column(name, right=name != "Backend") for name in names])
    for name, setup in report.setups.items():
        if setup.harness is not None:
            grid.rows.append(_costs(name, setup, setup.harness, signs(console)))
    if grid.rows:
        yield Text()
        yield heading("What the harness costs, an iteration with an empty op")
        yield fitting(console, lambda _: grid)


def _costs(name: str, setup: Setup, harness: Harness, sign: Signs) -> list[Text | str]:
    aligning = sign.none if setup.alignment is None else duration(setup.alignment.seconds)
    found = f"{harness.iterations:,}"
    return [name, duration(harness.inside), duration(harness.outside), aligning, found]


def legend(left_out: Sequence[str], sign: Signs, *, unsteady: bool) -> Text | None:
    """What marks in the table mean, and where the columns are that had no room."""
    mark = marks(sign)
    parts = [f"{mark.unsteady} wider than asked for"] if unsteady else []
    if left_out:
        names = ", ".join(name.partition("\n")[0] for name in left_out)
        parts.append(f"--format json has {names} too")
    return Text("; ".join(parts) + ".", style=colours.QUIET) if parts else None
