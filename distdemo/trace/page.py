"""A traced run as a self-contained web page that plays and explains it without network access.

The page is ``assets/page.html`` with the style ``assets/page.css``. Its scripts are concatenated
into one function, so they share names and define no globals. A content security policy allows only
this style and this script, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from html import escape
from importlib.resources import files
from itertools import pairwise
from string import Template
from typing import Any

from distdemo.schedules.contract import LETTERS
from distdemo.trace.records import HeldChunk, PlayedRound, TraceReport
from distdemo.trace.texts import (
    cost_table,
    notes,
    payload_text,
    title,
    verdict_text,
    wrong_text,
)
from distdemo.view.console import Signs
from distdemo.view.foreign import one_line
from distdemo.view.format import duration, exact_size, listing, number, plural, ranges, ranks_text

SCRIPTS = (
    "data.js",  # the rounds, and the state after k rounds
    "texts.js",  # cells as text
    "layout.js",  # positions of ranks and chunks
    "cells.js",  # drawing of ranks and chunks
    "arrows.js",  # drawing of messages
    "table.js",  # the state as a table
    "times.js",  # working and waiting times of each rank
    "tip.js",  # tooltip of a chunk
    "player.js",  # the current round and playback
    "page.js",  # controls, keys and start-up
)
MOST_OPEN = 4  # wrong chunks shown unfolded; more would push the picture off the screen
MOST_NAMED = 8  # messages or chunks that a sentence names; the rest are counted
CONTENTS = {"held": "", "original": "its original ", "last": "the last received "}


def page(report: TraceReport) -> str:
    """Return the self-contained page."""
    style = _asset("page.css")
    body = "\n".join(_asset(name) for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{body}}})();\n'
    # ASCII JSON without <, > and &, so that it is safe inside a script element.
    data = json.dumps(page_data(report), separators=(",", ":"), allow_nan=False)
    data = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    headline = title(report, Signs())
    built_by = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    text = Template(_asset("page.html")).substitute(
        title=to_html(f"distdemo trace: {headline}"),
        headline=to_html(headline),
        summary=to_html(report.algorithm.summary),
        source=to_html(report.algorithm.source),
        last=str(len(report.rounds)),
        verdict="\n".join(_verdict(report)),
        rounds=_rounds(report),
        counts=_counts(report),
        by_rank=_by_rank(report),
        notes="".join(
            f'<p class="quiet">{to_html(note)}</p>' for note in (*notes(report), built_by)
        ),
        policy=(
            f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
        style=style,
        script=script,
        data=data,
    )
    # User input may contain half of a surrogate pair, which UTF-8 can't encode.
    return text.encode("utf-8", "replace").decode("utf-8")


def _hash(text: str) -> str:
    """Return the CSP hash of the text between the tags (CSP level 2, section 4.2.5)."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _asset(name: str) -> str:
    return (files("distdemo.trace") / "assets" / name).read_text(encoding="utf-8")


def to_html(text: object) -> str:
    """Return any text as one line of HTML."""
    return escape(one_line(str(text)))


# ----------------------------------------------------------------------------- for the script


def page_data(report: TraceReport) -> dict[str, Any]:
    """Return the run in compact form: 64 ranks in 126 rounds have half a million cells."""
    slots = [set(wanted) for wanted in report.wanted]
    for by_rank in (report.start, *(played.arrived for played in report.rounds)):
        for slot, cells in zip(slots, by_rank, strict=False):
            slot.update(cell.chunk for cell in cells)
    return {
        "op": report.op.op,
        "algorithm": report.algorithm.name,
        "n": report.n,
        "reduced": report.op.reduce_op is not None,
        "chunks": list(report.chunk_names),
        "wanted": [list(chunks) for chunks in report.wanted],
        # Chunks that each rank ever holds or should hold: each has a fixed position.
        "slots": [sorted(slot) for slot in slots] if report.start else [],
        # The ranks' chunks of a failed run are unknown, so there is no picture.
        "start": [[_cell(cell) for cell in cells] for cells in report.start] or None,
        "rounds": [_round_data(played, report.element_bytes) for played in report.rounds],
        "words": round_texts(report) if report.start else [],
        "wrong": [
            {
                "rank": wrong.rank,
                "chunk": wrong.chunk,
                "words": wrong_text(wrong, report.chunk_names),
            }
            for wrong in report.wrong
        ],
    }


def _cell(cell: HeldChunk) -> list[Any]:
    """Return the chunk, ranges of contributing ranks, 1 if complete, and its numbers."""
    values = [v if isinstance(v, str) else number(v) for v in cell.values]
    return [cell.chunk, _flat_ranges(cell.ranks), int(cell.complete), values]


def _flat_ranges(numbers: Sequence[int]) -> list[int]:
    """Return the first and last of each run: ``0 1 2 5`` becomes ``[0, 2, 5, 5]``."""
    return [end for ends in ranges(numbers) for end in ends]


def _round_data(played: PlayedRound, itemsize: int) -> dict[str, Any]:
    return {
        "phase": played.phase,
        "messages": [
            {
                "src": t.src,
                "dst": t.dst,
                "chunks": _flat_ranges(sorted(t.chunks)),
                "bytes": t.elements * itemsize,
                "reduce": t.reduce,
            }
            for t in played.transfers
            if t.elements
        ],
        "arrived": {
            rank: [_cell(cell) for cell in cells]
            for rank, cells in enumerate(played.arrived)
            if cells
        },
        "gone": {rank: list(gone) for rank, gone in enumerate(played.gone) if gone},
        "moments": [[m.began_s, m.posted_s, m.arrived_s, m.ended_s] for m in played.moments],
    }


# -------------------------------------------------------------------------------------- sentences


def round_texts(report: TraceReport) -> list[tuple[str, str, str]]:
    """Return (title, messages, result) of the start and of each round."""
    states = list(report.states())
    head = "Before the first round" if report.rounds else "No round is needed"
    texts = [(head, "", _progress(report, states[0], None))]
    for played, (before, after) in zip(report.rounds, pairwise(states), strict=True):
        head = f"Round {played.number} of {len(report.rounds)}"
        progress = _progress(report, after, before)
        phase = f", {played.phase}" if played.phase else ""
        texts.append((f"{head}{phase}", _messages(report, played), progress))
    return texts


def _messages(report: TraceReport, played: PlayedRound) -> str:
    """Describe the messages of a round, and whether the receiver combines or keeps them."""
    kinds: dict[tuple[bool, str], list[str]] = {}
    for t in played.transfers:
        if t.elements:
            what = f"{CONTENTS[t.content]}{_chunk_list(report, t.chunks)}"
            message = f"rank {t.src} sends {what} to rank {t.dst}"
            kinds.setdefault((t.reduce, t.content), []).append(message)
    texts = []
    for (reduce, _), sent in kinds.items():
        effect = "combined with the receiver's data" if reduce else "stored as received"
        texts.append(f"{listing(_shorten(sent))}; {effect}.")
    return " ".join(texts) or "all messages are empty."


def _chunk_list(report: TraceReport, chunks: Sequence[int]) -> str:
    """Return ``chunk 2`` or ``chunks 0-3 and 6``; a long list is shortened."""
    names = [report.chunk_names[chunk] for chunk in chunks]
    is_plain = names == [str(chunk) for chunk in chunks]
    texts = ranks_text(chunks).split(", ") if is_plain else names
    return f"{'chunk' if len(chunks) == 1 else 'chunks'} {listing(_shorten(texts))}"


def _shorten(texts: list[str]) -> list[str]:
    """Shorten a long list to its first items and the number of the rest."""
    more = [f"{len(texts) - MOST_NAMED:,} more"] if len(texts) > MOST_NAMED else []
    return texts[:MOST_NAMED] + more


Held = tuple[dict[int, HeldChunk], ...]


def _progress(report: TraceReport, now: Held, before: Held | None) -> str:
    """Return the number of complete chunks, and the names of the newly completed ones."""

    def complete(state: Held) -> set[tuple[int, int]]:
        return {
            (rank, chunk)
            for rank, wanted in enumerate(report.wanted)
            for chunk in wanted
            if chunk in state[rank] and state[rank][chunk].complete
        }

    done = complete(now)
    wanted = sum(map(len, report.wanted))
    text = f"Complete: {len(done):,} of {plural(wanted, 'chunk')}"
    new = sorted(done - complete(before)) if before is not None else []
    names = _shorten([f"chunk {report.chunk_names[c]} on rank {rank}" for rank, c in new])
    return f"{text}; new: {listing(names)}." if names else f"{text}."


# --------------------------------------------------------------------------------- static content


def _verdict(report: TraceReport) -> Iterator[str]:
    """Yield the verdict with its sign."""
    if report.world.verdict is not None:
        why = report.world.verdict
        yield f'<p class="bad">✗ Failed. {to_html(f"{why.what} {why.why} {why.hint}")}</p>'
    elif not report.ok:
        texts = (wrong_text(wrong, report.chunk_names) for wrong in report.wrong)
        items = "".join(f"<li>✗ {to_html(text)}</li>" for text in texts)
        opened = " open" if len(report.wrong) <= MOST_OPEN else ""
        head = f'<summary class="bad">✗ {verdict_text(report)}</summary>'
        yield f'<details class="wrong"{opened}>{head}<ul>{items}</ul></details>'
    else:
        yield f'<p class="good">✓ {verdict_text(report)}</p>'


def _counts(report: TraceReport) -> str:
    """Return the table of formulas, counts and bytes handed to the backend."""
    table = _table("Formulas and counts", *cost_table(report, Signs()))
    letters = to_html(f"S: {payload_text(report.traffic)}; {LETTERS}")
    return f'<div class="counts">{table}</div><p class="quiet">{letters}</p>'


def _by_rank(report: TraceReport) -> str:
    """Return the table of bytes that each rank sends and receives."""
    heads = ["Rank", "Sent", "Received", *(["Handed over"] if report.handed_bytes else [])]
    columns = [report.sent_bytes, report.received_bytes]
    columns += [report.handed_bytes] if report.handed_bytes else []
    rows = [
        [f"Rank {rank}", *map(exact_size, row)]
        for rank, row in enumerate(zip(*columns, strict=True))
    ]
    return _table("Bytes per rank", heads, rows)


def _rounds(report: TraceReport) -> str:
    """Return a table with one row per round, each with a button to jump to the round's end."""
    if not report.start:
        return "<p>The run failed, so the chunks of the ranks are unknown.</p>"
    timed = any(played.moments for played in report.rounds)
    phased = any(played.phase for played in report.rounds)
    heads = ["After", *(["Phase"] if phased else []), "Messages", "Largest", "Total"]
    heads += ["Time"] if timed else []
    rows = [["0", *[""] * (len(heads) - 1)]]
    for played in report.rounds:
        sizes = [t.elements * report.element_bytes for t in played.transfers if t.elements]
        amounts = [str(len(sizes)), exact_size(max(sizes, default=0)), exact_size(sum(sizes))]
        time = [_round_time(played)] if timed else []
        phase = [played.phase] if phased else []
        rows.append([str(played.number), *phase, *amounts, *time])

    def button(at: str) -> str:
        name = f"Round {at}" if at != "0" else "The start"
        return f'<button type="button" class="jump" data-round="{at}">{name}</button>'

    return _table("All rounds", heads, rows, button)


def _round_time(played: PlayedRound) -> str:
    """Return the time from the first rank's begin to the last rank's end of the round."""
    busy = [m for m in played.moments if m.ended_s > m.began_s]
    if not busy:
        return "—"
    return duration(max(m.ended_s for m in busy) - min(m.began_s for m in busy))


def _table(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    first: Callable[[str], str] = escape,
) -> str:
    """Return an HTML table that scrolls if it is wider than the page, also by keyboard.

    Args:
        caption: Caption of the table.
        heads: Column headings.
        rows: Rows of texts.
        first: Function that returns the HTML of a row's first cell.
    """
    top = "".join(f'<th scope="col">{to_html(head)}</th>' for head in heads)
    body = "".join(
        f'<tr><th scope="row">{first(row[0])}</th>'
        f"{''.join(f'<td>{to_html(cell)}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{to_html(caption)}"><table>'
        f"<caption>{to_html(caption)}</caption><thead><tr>{top}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
