"""The parts of the page that don't change: what it is, what came of it, counts, rounds, notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from html import escape

from distdemo.dtypes import DTYPES
from distdemo.trace.scheduling import Checked
from distdemo.trace.tracing import Played, TraceReport
from distdemo.trace.view_amounts import letters_line, mark, sameness, whole_bytes
from distdemo.trace.view_words import spoiled, wrong_words
from distdemo.view.console import Signs
from distdemo.view.numbers import duration, plural, shape_text
from distdemo.view.written import line_of

NAMES = {
    "rounds": "Rounds",
    "sent": "Sent by the rank that sends most",
    "busiest": "Through the busiest rank",
    "total": "Sent in all",
}
IN_SIGHT = 4  # wrong chunks that are named above the picture
WORDS = {
    "same": "the same",
    "different": "different",
    "unequal": "chunks are not equal",
}


def parts(report: TraceReport) -> dict[str, str]:
    """What the page's file names: text and HTML, ready to stand in it."""
    return {
        "title": clean(f"distdemo trace: {headline(report)}"),
        "headline": clean(headline(report)),
        "summary": clean(report.about.summary),
        "source": clean(report.about.source),
        "last": str(len(report.rounds)),
        "verdict": verdict(report),
        "no_times": clean(no_times(report)),
        "rounds": rounds(report),
        "counts": counts(report),
        "misprints": misprints(report),
        "by_rank": by_rank(report),
        "notes": notes(report),
    }


def clean(text: object) -> str:
    """Any text as HTML, without what could move a cursor or turn the writing around."""
    return escape(" ".join(map(line_of, str(text).splitlines())))


def headline(report: TraceReport) -> str:
    """Op, algorithm, ranks, what they hold: ``all_reduce sum · ring · 4 ranks · float32[4]``."""
    spec = report.spec.op
    parts = [
        " ".join(filter(None, (spec.op, spec.reduce_op))),
        report.about.name,
        plural(spec.group_size, "rank"),
        *([] if spec.root is None else [f"root {spec.root}"]),
        *([report.world.world.backend] if report.world else ["on paper"]),
        shape_text(spec.dtype, spec.shape),
    ]
    return " · ".join(parts)


def verdict(report: TraceReport) -> str:
    """Whether it is right, in words and by a sign; a simulation has nothing to verify."""
    return "\n".join(_verdict(report))


def _verdict(report: TraceReport) -> Iterator[str]:
    fault = report.spec.fault
    if fault is not None:
        yield f'<p class="spoiled">⚠ {clean(spoiled(fault))}</p>'
    if report.world is not None and report.world.verdict is not None:
        why = report.world.verdict
        yield f'<p class="bad">✗ Failed. {clean(why.what)} {clean(why.why)} {clean(why.hint)}</p>'
    elif report.wrong or not report.ok:
        yield f'<p class="bad">✗ Wrong: {_how_wrong(report)}</p>'
        yield _list([wrong_words(each, report.chunk_names) for each in report.wrong])
    elif report.verifications:
        checked = sum(each.checked for each in report.verifications)
        right = f"Verified: {plural(checked, 'element')}, every one right."
        yield f'<p class="good">✓ {right if checked else "There is no element to verify."}</p>'
    else:
        told = "On paper: nothing was run, so there are no times and nothing was verified."
        yield f'<p class="paper">{told}</p>'


def _how_wrong(report: TraceReport) -> str:
    if report.wrong:
        ranks = len({each.rank for each in report.wrong})
        return f"{plural(len(report.wrong), 'chunk')} on {plural(ranks, 'rank')}."
    wrong = sum(each.wrong for each in report.verifications)
    return f"{plural(wrong, 'element')}."


def _list(texts: Sequence[str]) -> str:
    """The first in sight, all others on demand: they would push the picture off the screen."""
    shown, hidden = _items(texts[:IN_SIGHT]), texts[IN_SIGHT:]
    if not hidden:
        return shown
    more = f"{plural(len(hidden), 'wrong chunk')} more"
    return f'{shown}<details class="wrong"><summary>{more}</summary>{_items(hidden)}</details>'


def _items(texts: Sequence[str]) -> str:
    items = "".join(f"<li>✗ {clean(text)}</li>" for text in texts)
    return f'<ul class="wrong">{items}</ul>' if items else ""


def no_times(report: TraceReport) -> str:
    """Why nobody was busy."""
    if report.world is None:
        return "On paper: nothing was run, so there are no times."
    return "No rank sent a message, so there are no times."


# -------------------------------------------------------------------------------------- counts


def counts(report: TraceReport) -> str:
    """Each formula beside what was counted, and what was really handed to the backend."""
    handed = _handed(report)
    heads = ["What", "Formula", "Gives", "Counted", "", *(["Handed over"] if handed else [])]
    rows = [_check(each, handed) for each in report.checks]
    letters = clean(letters_line(report.checks, report.traffic))
    table = _table("Formula beside count", heads, rows)
    return f'<div class="counts">{table}</div><p class="quiet">{letters}</p>'


def _handed(report: TraceReport) -> dict[str, int]:
    if not report.handed:
        return {}
    return {"sent": max(report.handed), "total": sum(report.handed)}


def _check(check: Checked, handed: dict[str, int]) -> list[str]:
    how = sameness(check)
    write = _number if check.name == "rounds" else whole_bytes
    cells = [
        NAMES.get(check.name, check.name),
        check.formula,
        write(check.value),
        write(check.counted),
        f"{mark(how, Signs())} {WORDS[how]}",
    ]
    if handed:
        cells.append(_beside(check.counted, handed.get(check.name)))
    return cells


def _beside(counted: int, handed: int | None) -> str:
    """What was really handed over, beside what was counted on paper."""
    if handed is None:
        return "—"
    return whole_bytes(handed) if handed == counted else f"≠ {whole_bytes(handed)}"


def _number(value: Fraction | int) -> str:
    return f"{float(value):,.10g}"


def misprints(report: TraceReport) -> str:
    """Other formulas for the bytes in all, and where they differ."""
    if not report.misprints:
        return ""
    items = "".join(
        f"<li><code>{clean(each.formula)}</code> gives {clean(whole_bytes(each.value))}, "
        f"{_against(each.value, report.counts.total)}. {clean(each.why)}</li>"
        for each in report.misprints
    )
    return f"<h3>Also in print</h3><ul>{items}</ul>"


def _against(value: Fraction | int, total: int) -> str:
    return "as was counted" if value == total else f"not {clean(whole_bytes(total))}"


def by_rank(report: TraceReport) -> str:
    """What each rank sends and receives."""
    heads = ["Rank", "Sent", "Received", *(["Handed over"] if report.handed else [])]
    rows = [
        [
            f"Rank {rank}",
            whole_bytes(sent),
            whole_bytes(received),
            *([whole_bytes(report.handed[rank])] if report.handed else []),
        ]
        for rank, (sent, received) in enumerate(
            zip(report.counts.sent, report.counts.received, strict=True)
        )
    ]
    return _table("Bytes of each rank", heads, rows)


# -------------------------------------------------------------------------------------- rounds


def rounds(report: TraceReport) -> str:
    """A row a round, with a button that jumps behind it."""
    if not report.start:
        return "<p>The run failed: nobody knows what the ranks held.</p>"
    itemsize = DTYPES[report.spec.op.dtype].itemsize
    timed = any(each.moments for each in report.rounds)
    heads = ["After", "Phase", "Messages", "Largest", "In all", *(["Took"] if timed else [])]
    rows = [["", "", "", "", "", *([""] if timed else [])]]
    rows += [_round(each, itemsize, timed=timed) for each in report.rounds]
    body = "".join(
        f'<tr><th scope="row"><button type="button" class="jump" data-round="{at}">'
        f"{f'Round {at}' if at else 'The start'}</button></th>"
        + "".join(f"<td>{clean(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for at, row in enumerate(rows)
    )
    return _framed("All rounds", heads, body)


def _round(played: Played, itemsize: int, *, timed: bool) -> list[str]:
    sizes = [each.elements * itemsize for each in played.step.transfers if each.elements]
    cells = ["", played.step.phase, f"{len(sizes):,}"]
    cells += [whole_bytes(max(sizes, default=0)), whole_bytes(sum(sizes))]
    return [*cells, took(played)] if timed else cells


def took(played: Played) -> str:
    """From the first rank that began the round until the last that ended it."""
    busy = [each for each in played.moments if each.ended > each.began]
    if not busy:
        return "—"
    return duration(max(each.ended for each in busy) - min(each.began for each in busy))


# --------------------------------------------------------------------------------------- notes


def notes(report: TraceReport) -> str:
    """What belongs under it, and the versions of what was run."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    told = filter(None, [*report.notes, versions])
    return "".join(f'<p class="quiet">{clean(each)}</p>' for each in told)


def _table(caption: str, heads: list[str], rows: list[list[str]]) -> str:
    body = "".join(
        f'<tr><th scope="row">{clean(row[0])}</th>'
        + "".join(f"<td>{clean(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return _framed(caption, heads, body)


def _framed(caption: str, heads: list[str], body: str) -> str:
    """A table that may be wider than its page; what is scrolled can be reached by keyboard."""
    top = "".join(f'<th scope="col">{clean(head)}</th>' if head else "<td></td>" for head in heads)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{clean(caption)}"><table>'
        f"<caption>{clean(caption)}</caption><thead><tr>{top}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
