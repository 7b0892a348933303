"""Two measurements side by side, as people read them: a row a size, and a line a series."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.bench.comparing import (
    ComparedRow,
    ComparedSeries,
    Comparison,
    Difference,
    Judged,
    Lonely,
    Overall,
)
from distdemo.bench.comparing import Verdict as Kind
from distdemo.bench.view_compare_words import ratio_words, series_words, verdict
from distdemo.bench.view_marks import spelled
from distdemo.bench.view_numbers import short_size, size_text
from distdemo.view import colours
from distdemo.view.console import ASCII_SIGNS, Signs, signs
from distdemo.view.frame import heading
from distdemo.view.grid import Column, Grid, fitting
from distdemo.view.numbers import duration

HALF = 4  # columns of a bar at each side of 1
FULL = 1.5  # the ratio at which a bar reaches its end, either way
STYLES: dict[Kind, str] = {
    "slower": colours.WRONG,
    "faster": colours.RIGHT,
    "no change": "",
    "cannot be told": colours.QUIET,
}
SHORT: dict[Kind, str] = {"cannot be told": "can't tell"}
UNSURE = "yellow"
SURE = 0.9  # of all intervals together: below it, that of each is told, too
SUSPECT = "!"  # what looks like a failure, which can't be told
FEW = 6  # differences and sizes that are all named


def compare_table(comparison: Comparison, console: Console) -> Group:
    """Every series with its rows, what differs, what is missing, and the verdict."""
    sign = signs(console)
    parts: list[RenderableType] = []
    for each in comparison.series:
        parts += [heading(series_words(each.key)), _rows(each, console)]
        parts += [_overall(each.overall, sign), Text()]
    parts += [Text(spelled(f"! {text}", sign), style=UNSURE) for text in comparison.warnings]
    parts += _differences(comparison.differences, sign)
    parts += [Text(spelled(_lonely(each), sign), style=colours.QUIET) for each in comparison.lonely]
    notes = (*comparison.notes, *_confidence(comparison))
    parts += [Text(spelled(text, sign), style=colours.QUIET) for text in notes]
    return Group(*parts, verdict_line(comparison, sign))


def verdict_line(comparison: Comparison, sign: Signs) -> Text:
    """Whether anything changed, in one line."""
    mark, style = sign.right, colours.RIGHT
    if not comparison.ok:
        mark, style = sign.wrong, colours.WRONG
    elif comparison.suspects:
        mark, style = SUSPECT, UNSURE
    return Text(spelled(f"{mark} {verdict(comparison)}", sign), style=style)


def bar(found: Judged, sign: Signs) -> str:
    """Where the interval lies around 1: ``  ├─●``; the middle column is 1.

    The scale is logarithmic and ends at ``FULL``: what lies beyond is drawn at the end.
    """
    plain = sign == ASCII_SIGNS
    middle, line, dot = ("|", "-", "o") if plain else ("│", "━", "●")
    cells = [" "] * (2 * HALF + 1)
    low, high = (_place(edge) for edge in found.interval or (found.ratio, found.ratio))
    cells[low : high + 1] = line * (high - low + 1)
    cells[HALF] = middle
    if found.interval is not None:
        cells[_place(found.ratio)] = dot
    return "".join(cells)


def _place(value: float) -> int:
    share = math.log(value) / math.log(FULL) if value > 0 else -1.0
    return HALF + round(HALF * min(1.0, max(-1.0, share)))


def _rows(series: ComparedSeries, console: Console) -> RenderableType:
    sign = signs(console)

    def draw(_: int) -> Grid:
        names = ("Size", "Old", "New")
        columns = [*(Column(name, right=True) for name in names)]
        columns += [Column("New/old"), Column("Around 1"), Column("Verdict")]
        return Grid(columns, [_row(row, sign) for row in series.rows])

    return fitting(console, draw)


def _row(row: ComparedRow, sign: Signs) -> list[Text | str]:
    text = SHORT.get(row.verdict, row.verdict)
    return [
        size_text(row.size),
        duration(row.old),
        duration(row.new),
        spelled(ratio_words(row), sign),
        bar(row, sign),
        Text(text + _mark(row, sign), style=UNSURE if row.suspect else STYLES[row.verdict]),
    ]


def _mark(found: Judged, sign: Signs) -> str:
    return f" {sign.wrong}" if found.fails else f" {SUSPECT}" if found.suspect else ""


def _overall(overall: Overall, sign: Signs) -> Text:
    old, new = overall.launches
    text = f"All sizes: {ratio_words(overall)} {overall.verdict}{_mark(overall, sign)}"
    text += f" (from {old} and {new} launches)"
    return Text(spelled(text, sign), style=UNSURE if overall.suspect else STYLES[overall.verdict])


def _differences(found: tuple[Difference, ...], sign: Signs) -> Iterator[Text]:
    """What differs and is no warning."""
    light = [each for each in found if not each.weighty]
    for each in light[:FEW]:
        text = f"Differs: {each.name}: {each.old} → {each.new}"
        yield Text(spelled(text, sign), style=colours.QUIET)
    if len(light) > FEW:
        rest = f"{len(light) - FEW} more differences; --format json has them all."
        yield Text(rest, style=colours.QUIET)


def _lonely(lonely: Lonely) -> str:
    named = ", ".join(map(short_size, lonely.sizes[:FEW]))
    more = f" and {len(lonely.sizes) - FEW} more" if len(lonely.sizes) > FEW else ""
    what = "all of it" if lonely.whole else f"{named}{more}"
    return f"Only in the {lonely.where} file: {series_words(lonely.key)}: {what}."


def _confidence(comparison: Comparison) -> Iterator[str]:
    if comparison.confidence is None:
        return
    whole = f"All intervals of sizes hold together with {comparison.confidence:.1%} confidence"
    if comparison.each is not None and comparison.confidence < SURE:
        whole = (
            f"Each interval of a size holds with {comparison.each:.1%} confidence, all of them "
            f"together with {comparison.confidence:.0%} at least"
        )
    yield (
        f"{whole}, as far as the noise is that between launches; whole runs differ by a few "
        "percent more."
    )
