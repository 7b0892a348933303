"""A traced run as a self-contained web page that plays and explains it without network access.

The page is ``assets/page.html`` with the style ``assets/page.css``. Its scripts are concatenated
into one function, so they share names and define no globals. A content security policy allows only
this style and this script, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from distdemo.schedules.contract import LETTERS
from distdemo.trace.records import HeldChunk, PlayedRound, TraceReport
from distdemo.trace.view import cost_table, notes, payload_text, title, verdict_text, wrong_texts
from distdemo.trace.view_picture import CONTENTS, VERSIONS
from distdemo.view.colours import BAD, GOOD, INK, LINK, PAPER, of_rank
from distdemo.view.console import Signs
from distdemo.view.foreign import one_line
from distdemo.view.format import listing, number, plural, range_texts, ranges
from distdemo.view.tables import Grid

SCRIPTS = (
    "data.js",  # the rounds, and the state after k rounds
    "texts.js",  # cells as text
    "layout.js",  # positions of ranks and chunks
    "cells.js",  # drawing of ranks and chunks
    "arrows.js",  # drawing of messages
    "table.js",  # the state as a table
    "tip.js",  # tooltip of a chunk
    "player.js",  # the current round and playback
    "page.js",  # controls, keys and start-up
)
MOST_NAMED = 8  # messages or chunks that a sentence names; the rest are counted


def page(report: TraceReport) -> str:
    """Return the self-contained page."""
    style = palette_css(report.n) + _asset("page.css")
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
        verdict=_verdict(report),
        counts=_table(cost_table(report)),
        notes=to_html(f"S: {payload_text(report)}; {LETTERS} {notes(report)}"),
        versions=to_html(built_by),
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


def palette_css(n: int) -> str:
    """Return the palette as CSS variables, with a colour for each of n ranks."""
    names = {"paper": PAPER, "ink": INK, "good": GOOD, "bad": BAD, "link": LINK}
    variables = [f"--palette-{name}: {colour};" for name, colour in names.items()]
    variables += [f"--rank-{rank}: {of_rank(rank)};" for rank in range(n)]
    return f"\n:root {{ {' '.join(variables)} }}\n"


def to_html(text: object) -> str:
    """Return any text as one line of HTML."""
    return escape(one_line(str(text)))


def _verdict(report: TraceReport) -> str:
    """Return the verdict with its sign."""
    if report.world.verdict is not None:
        why = report.world.verdict
        return f'<p class="bad">✗ Failed. {to_html(f"{why.what} {why.why} {why.hint}")}</p>'
    if report.ok:
        return f'<p class="good">✓ {verdict_text(report)}</p>'
    texts = " ".join(wrong_texts(report).values())
    return f'<p class="bad">✗ {to_html(f"{verdict_text(report)} {texts}")}</p>'


def _table(grid: Grid) -> str:
    """Return an HTML table."""
    top = "".join(f'<th scope="col">{to_html(column.name)}</th>' for column in grid.columns)
    body = "".join(
        f'<tr><th scope="row">{to_html(row[0])}</th>'
        f"{''.join(f'<td>{to_html(cell)}</td>' for cell in row[1:])}</tr>"
        for row in grid.rows
    )
    head = f"<thead><tr>{top}</tr></thead>"
    return f'<table aria-labelledby="counts-title">{head}<tbody>{body}</tbody></table>'


# ----------------------------------------------------------------------------- for the script


def page_data(report: TraceReport) -> dict[str, Any]:
    """Return the run in compact form: 64 ranks in 126 rounds have half a million cells."""
    slots = [set(wanted) for wanted in report.wanted]
    for by_rank in (report.start, *(played.arrived for played in report.rounds)):
        for slot, cells in zip(slots, by_rank, strict=False):
            slot.update(cell.chunk for cell in cells)
    return {
        "n": report.n,
        "reduced": report.op.reduce_op is not None,
        "chunks": list(report.chunk_names),
        "elements": list(report.chunk_elements),
        "wanted": [list(chunks) for chunks in report.wanted],
        # Chunks that each rank ever holds or should hold: each has a fixed position.
        "slots": [sorted(slot) for slot in slots] if report.start else [],
        # The ranks' chunks of a failed run are unknown, so there is no picture.
        "start": [_cells(report, rank, cells) for rank, cells in enumerate(report.start)] or None,
        "rounds": [_round_data(report, played) for played in report.rounds],
        "words": round_texts(report) if report.start else [],
    }


def _cells(report: TraceReport, rank: int, cells: Sequence[HeldChunk]) -> list[list[Any]]:
    """Return each chunk, ranges of contributing ranks, 1 if complete as needed, and values."""
    return [
        [
            cell.chunk,
            _flat_ranges(cell.ranks),
            int(cell.complete and cell.chunk in report.wanted[rank]),
            [v if isinstance(v, str) else number(v) for v in cell.values],
        ]
        for cell in cells
    ]


def _flat_ranges(numbers: Sequence[int]) -> list[int]:
    """Return the first and last of each run: ``0 1 2 5`` becomes ``[0, 2, 5, 5]``."""
    return [end for ends in ranges(numbers) for end in ends]


def _round_data(report: TraceReport, played: PlayedRound) -> dict[str, Any]:
    return {
        "messages": [
            {
                "src": t.src,
                "dst": t.dst,
                "chunks": _flat_ranges(sorted(t.chunks)),
                "reduce": t.reduce,
                "version": VERSIONS[t.content],
            }
            for t in played.transfers
            if t.elements
        ],
        "arrived": {
            rank: _cells(report, rank, cells) for rank, cells in enumerate(played.arrived) if cells
        },
        "gone": {rank: list(gone) for rank, gone in enumerate(played.gone) if gone},
    }


def round_texts(report: TraceReport) -> list[tuple[str, str, str]]:
    """Return (title, messages, result) of the start and of each round."""
    wanted = sum(map(len, report.wanted))
    rounds = [("Before the first round" if report.rounds else "No round is needed", "")]
    for played in report.rounds:
        phase = f", {played.phase}" if played.phase else ""
        head = f"Round {played.number} of {len(report.rounds)}{phase}"
        rounds.append((head, _messages(report, played)))
    texts = []
    for (head, messages), held in zip(rounds, report.states(), strict=True):
        complete = sum(
            chunk in held[rank] and held[rank][chunk].complete
            for rank, chunks in enumerate(report.wanted)
            for chunk in chunks
        )
        texts.append((head, messages, f"Complete: {complete:,} of {plural(wanted, 'chunk')}."))
    return texts


def _messages(report: TraceReport, played: PlayedRound) -> str:
    """Describe the messages of a round, and whether the receiver combines or keeps them."""
    transfers = [t for t in played.transfers if t.elements]
    texts = [
        f"rank {t.src} sends {CONTENTS[t.content]}{_chunk_list(report, t.chunks)} to rank {t.dst}"
        for t in transfers
    ]
    if not transfers:
        return "all messages are empty."
    combines = transfers[0].reduce  # as do all messages of a round
    effect = "combined with the receiver's data" if combines else "stored as received"
    return f"{listing(_shorten(texts))}; {effect}."


def _chunk_list(report: TraceReport, chunks: Sequence[int]) -> str:
    """Return ``tensor``, ``chunk 2`` or ``chunks 0-3 and 6``; a long list is shortened."""
    if len(report.chunk_names) == 1:
        return "tensor"
    names = [report.chunk_names[chunk] for chunk in chunks]
    is_plain = names == [str(chunk) for chunk in chunks]
    texts = range_texts(chunks) if is_plain else names
    return f"{'chunk' if len(chunks) == 1 else 'chunks'} {listing(_shorten(texts))}"


def _shorten(texts: list[str]) -> list[str]:
    """Shorten a long list to its first items and the number of the rest."""
    more = [f"{len(texts) - MOST_NAMED:,} more"] if len(texts) > MOST_NAMED else []
    return texts[:MOST_NAMED] + more
