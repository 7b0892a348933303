"""A contest as one web page: the picture, every number, and what they stand on.

It needs no network and no script, and is light or dark as its reader prefers.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from distdemo.bench.view_page import STYLE
from distdemo.trace.contending import Arena, CompareReport, Contender
from distdemo.trace.view_amounts import took, whole_bytes
from distdemo.trace.view_compare_words import ASSUMPTIONS, ON_PAPER, below, legend, title, verdict
from distdemo.trace.view_standings import fastest, formula_state, handed_state, name

HEADS = (
    *("Algorithm", "Rounds", "Sent by a rank, most", "Busiest rank", "In all"),
    *("= formula", "= handed", "Median", "from", "to", "α–β model", "Shared model"),
    *("Wrong", "Checked", ""),
)
MARKS = {"same": "✓", "different": "≠", "unequal": "≈"}
NONE = "—"
MORE = """
body { max-width: 88rem; }
th:first-child, td:first-child { text-align: left; }
.best { font-weight: bold; }
@media (prefers-color-scheme: dark) {
  svg [style*="fill: #1a1a1a"] { fill: #e6e6e6 !important; }
  svg [style*="stroke: #1a1a1a"] { stroke: #e6e6e6 !important; }
  svg [style*="fill: #0072b2"] { fill: #8f9bff !important; }
  svg [style*="stroke: #0072b2"] { stroke: #8f9bff !important; }
}
""".rstrip()
"""Beside the pages' own style: in the dark the blue stays apart from the sky blue."""


def page(report: CompareReport, picture: str) -> str:
    """The page.

    Args:
        report: of the contest or the simulation.
        picture: an ``svg`` element.
    """
    heads = [title(arena, report) for arena in report.arenas]
    what = heads[0].split(" · ")[0] if heads else "nothing"
    lead = f"distdemo trace: {what.replace('_', '-')}, algorithms side by side"
    parts = [
        *("<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">'),
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(lead)}</title>",
        f"<style>\n{STYLE}{MORE}\n</style>",
        *("</head>", "<body>", f"<h1>{escape(lead)}</h1>"),
        *([f"<p><strong>{escape(ON_PAPER)}.</strong></p>"] if report.simulated else []),
        f"<p>{escape(verdict(report))}</p>",
        *("<figure>", picture, "</figure>"),
        *(line for arena in report.arenas for line in _arena(arena, report)),
        *_told(report),
        *("</body>", "</html>"),
    ]
    return "\n".join(parts) + "\n"


def _arena(arena: Arena, report: CompareReport) -> Iterator[str]:
    best = fastest(arena)
    yield f"<h2>{escape(title(arena, report))}</h2>"
    yield '<div class="wide"><table><thead><tr>'
    yield "".join(f"<th>{head}</th>" for head in HEADS)
    yield "</tr></thead><tbody>"
    yield from (_row(row, report, best=row is best) for row in arena.contenders)
    yield "</tbody></table></div>"
    yield from (f"<p>{escape(text)}</p>" for text in (*legend(arena, report, "★"), *arena.order))


def _row(row: Contender, report: CompareReport, *, best: bool) -> str:
    star = "★ " if best else ""
    cells = [f"{star}{name(row, report)}", *_costs(row), *_times(row)]
    body = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f"<tr{' class=best' * best}>{body}<td>{escape(row.refused)}</td></tr>"


def _costs(row: Contender) -> list[str]:
    counts = row.counts
    if counts is None:
        return [NONE] * 6
    amounts = (counts.sent_most, counts.busiest, counts.total)
    states = (formula_state(row), handed_state(row))
    return [
        f"{counts.rounds:,}",
        *map(whole_bytes, amounts),
        *(MARKS.get(state, NONE) for state in states),
    ]


def _times(row: Contender) -> list[str]:
    timing = row.timing
    known = (timing.median, timing.low, timing.high) if timing else (None, None, None)
    times = (*known, row.predicted, row.shared)
    checked = (timing.wrong, timing.checked) if timing else (None, None)
    return [
        *(NONE if time is None else took(time) for time in times),
        *(NONE if number is None else f"{number:,}" for number in checked),
    ]


def _told(report: CompareReport) -> Iterator[str]:
    """All sentences, and what predictions stand on."""
    for text in below(report):
        yield f"<p>{escape(text)}</p>"
    if report.link is not None:
        yield "<p>It is assumed that:</p>"
        yield f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in ASSUMPTIONS)}</ul>"
    for text in report.notes:
        yield f'<p class="quiet">{escape(text)}</p>'
    versions = ", ".join(f"{key} {value}" for key, value in report.versions.items())
    yield f'<p class="quiet">{escape(versions)}</p>'
