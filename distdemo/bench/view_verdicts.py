"""Is this normal? A line for each run of sizes that have the same verdict, with the reason."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rich.text import Text

from distdemo.bench.old_records import BenchReport, Row, Series
from distdemo.bench.view_columns import NORMAL, UNSURE
from distdemo.bench.view_marks import marks, spelled
from distdemo.bench.view_names import labels
from distdemo.bench.view_numbers import half_width, percent, short_size, span_text
from distdemo.view import colours
from distdemo.view.console import Signs
from distdemo.view.numbers import duration, plural

FEW = 6  # sizes that are named
TOGETHER = 3  # series that are named in one line


def verdict_lines(report: BenchReport, sign: Signs) -> Iterator[Text]:
    """Of every series, the kinds in the order of its sizes; what to try is said once."""
    hints: set[str] = set()
    several = len(report.series) > 1
    for (*_, first, last), found in _alike(report).items():
        names = ", ".join(found) if len(found) <= TOGETHER else f"{len(found)} series"
        where = f"{names}: " * several + span_text(first, last)
        yield _line(where, min(found.values(), key=_lowest), hints, sign)


def _alike(report: BenchReport) -> dict[tuple[str, str, int, int], dict[str, list[Row]]]:
    """The runs by kind, backend, first and last size; of each the rows by the series' names.

    Two backends' bandwidths are held against different limits.
    """
    found: dict[tuple[str, str, int, int], dict[str, list[Row]]] = {}
    for name, series in zip(labels(report.series), report.series, strict=True):
        for rows in _runs(series):
            key = _kind(rows[0]), series.spec.backend, rows[0].size, rows[-1].size
            found.setdefault(key, {})[name] = rows
    return found


def _lowest(rows: Sequence[Row]) -> float:
    """The bandwidth of the last size, where it is the most telling."""
    return rows[-1].busbw


def _runs(series: Series) -> Iterator[list[Row]]:
    """Neighbouring rows with the same kind of verdict."""
    for kind, rows in itertools.groupby(series.rows, _kind):
        if kind:
            yield list(rows)


def _kind(row: Row) -> str:
    return row.judgement.kind if row.judgement else ""


def _line(where: str, rows: Sequence[Row], hints: set[str], sign: Signs) -> Text:
    """The reason is that of the last size; of several series, the slowest one's."""
    last = rows[-1].judgement
    if last is None:
        return Text()
    same = all(row.judgement and row.judgement.why == last.why for row in rows)
    text = Text(f"{where}: ", style="bold")
    text.append(last.kind, style=colours.RIGHT if last.kind in NORMAL else UNSURE)
    why = last.why if same else f"at {short_size(rows[-1].size)} {_lower(last.why)}"
    text.append(f": {_sentence(why, sign)}" if why else ".", style="not bold")
    if last.hint and last.hint not in hints:
        text.append(f" {_sentence(_upper(last.hint), sign)}", style="not bold")
        hints.add(last.hint)
    return text


def _lower(text: str) -> str:
    """Within a sentence; a name or an abbreviation stays as it is."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(text: str, sign: Signs) -> str:
    return spelled(text.rstrip("."), sign) + "."


def unsteady_line(report: BenchReport, sign: Signs) -> Text | None:
    """Which sizes' medians are not as certain as was asked for; None if all are."""
    found = report.unsteady
    if not found:
        return None
    mark, total = marks(sign), sum(len(series.rows) for series in report.series)
    within = f"{mark.half}{percent(report.spec.precision)}"
    names = dict(zip(map(id, report.series), labels(report.series), strict=True))
    several = len(report.series) > 1
    told = [f"{names[id(s)]} " * several + _told(row, sign) for s, row in found[:FEW]]
    more = f", {sign.more} {len(found) - FEW} more" if len(found) > FEW else ""
    count = f"{len(found)} of {plural(total, 'size')}"
    text = f"Not steady within {within} ({mark.unsteady}): {count}: {', '.join(told)}{more}."
    return Text(text, style=UNSURE)


def _told(row: Row, sign: Signs) -> str:
    width = half_width(row, marks(sign).half)
    return f"{short_size(row.size)} ({width or 'too few launches for an interval'})"


def overlap_lines(report: BenchReport) -> Iterator[Text]:
    """How much of the communication was hidden, of each series the best size, with its times."""
    for name, series in zip(labels(report.series), report.series, strict=True):
        rows = [row for row in series.rows if row.overlap]
        best = max(rows, key=lambda row: row.overlap.hidden if row.overlap else 0, default=None)
        if best is None or best.overlap is None:
            continue
        lap, lead = best.overlap, f"{name}: " if len(report.series) > 1 else ""
        yield Text(
            f"{lead}at best {percent(lap.hidden)} of the communication is hidden, at "
            f"{short_size(best.size)}: alone {duration(lap.alone)}, computing "
            f"{duration(lap.compute)}, together {duration(lap.together)}."
        )
