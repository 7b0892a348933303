"""A measurement as one web page: the picture, every number, and what they depend on.

It needs no network and no script, and is light or dark as its reader prefers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from distdemo.bench.old_records import BenchReport, Row, Series
from distdemo.bench.view_limits import limit_lines
from distdemo.bench.view_names import headline, title
from distdemo.bench.view_numbers import half_width, percent, rate, size_text
from distdemo.bench.view_verdict import verdict
from distdemo.bench.yardsticks import Setup
from distdemo.view.numbers import duration

HEADS = (
    *("Size", "Bytes", "Median", "±", "min", "p10", "p90", "p99", "max"),
    *("algbw GB/s", "busbw GB/s", "of limit", "Wrong", "Iterations", "Verdict"),
)
STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem;
  padding: 0 1rem; color: #1a1a1a; background: #ffffff; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
figure { margin: 1rem 0; }
svg { width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.8rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.45rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid #dddddd; }
th:last-child, td:last-child, .facts td, .facts th { text-align: left; }
.facts td { white-space: normal; }
.unsteady::after { content: " !"; font-weight: bold; }
.quiet { color: #555555; }
@media (prefers-color-scheme: dark) {
  body { color: #e6e6e6; background: #16181c; }
  th, td { border-color: #3a3d44; } .quiet { color: #a0a4ab; }
  svg text { fill: #e6e6e6 !important; }
  svg [style*="stroke: #000000"] { stroke: #e6e6e6 !important; }
  svg [style*="fill: #000000"] { fill: #e6e6e6 !important; }
  svg [style*="fill: #ffffff"] { fill: #16181c !important; }
  svg [style*="stroke: #dddddd"] { stroke: #33363d !important; }
  svg [style*="stroke: #555555"] { stroke: #a0a4ab !important; }
  svg [style*="stroke: #0072b2"] { stroke: #4da6dd !important; }
  svg [style*="fill: #0072b2"] { fill: #4da6dd !important; }
}
""".strip()


def page(report: BenchReport, picture: str) -> str:
    """The page.

    Args:
        report: of the measurement.
        picture: an ``svg`` element.
    """
    name = f"distdemo bench: {headline(report, '·')}"
    parts = [
        *("<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">'),
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(name)}</title>",
        f"<style>\n{STYLE}\n</style>",
        *("</head>", "<body>", f"<h1>{escape(name)}</h1>"),
        f"<p>{escape(verdict(report))}</p>",
        *("<figure>", picture, "</figure>"),
        *(line for series in report.series for line in _series(series)),
        *_facts("Limits and setup", _setups(report.setups)),
        *_facts("Environment", {**report.environment, **report.versions}),
        *(f'<p class="quiet">{escape(note)}</p>' for note in report.notes),
        *("</body>", "</html>"),
    ]
    return "\n".join(parts) + "\n"


def _series(series: Series) -> Iterator[str]:
    yield f"<h2>{escape(title(series.spec, '·'))}</h2>"
    for text in filter(None, (series.spec.refused, series.error)):
        yield f"<p>Not measured to its end: {escape(text)}</p>"
    if series.rows:
        yield '<div class="wide"><table><thead><tr>'
        yield "".join(f"<th>{head}</th>" for head in HEADS)
        yield "</tr></thead><tbody>"
        yield from (_row(row) for row in series.rows)
        yield "</tbody></table></div>"


def _row(row: Row) -> str:
    share = row.judgement.share if row.judgement else None
    kind, why = (row.judgement.kind, row.judgement.why) if row.judgement else ("", "")
    times = (row.fastest, row.p10, row.p90, row.p99, row.slowest)
    cells = [size_text(row.size), f"{row.size:,}", duration(row.median), half_width(row, "±")]
    cells += [*map(duration, times), rate(row.algbw), rate(row.busbw)]
    cells += ["" if share is None else percent(share), f"{row.wrong:,}", f"{row.iterations:,}"]
    body = "".join(
        f'<td class="unsteady">{cell}</td>' if place == 3 and not row.steady else f"<td>{cell}</td>"
        for place, cell in enumerate(cells)
    )
    return f'<tr>{body}<td title="{escape(why)}">{escape(kind)}</td></tr>'


def _setups(setups: Mapping[str, Setup]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, setup in setups.items():
        found |= {f"{name} {place}": line for place, line in enumerate(limit_lines(setup), 1)}
        if setup.alignment is not None:
            found[f"{name} ranks start together by"] = setup.alignment.way
    return found


def _facts(name: str, facts: Mapping[str, object]) -> Sequence[str]:
    if not facts:
        return []
    rows = (
        f"<tr><th>{escape(key)}</th><td>{escape(str(value))}</td></tr>"
        for key, value in facts.items()
    )
    return [f"<h2>{escape(name)}</h2>", '<table class="facts"><tbody>', *rows, "</tbody></table>"]
