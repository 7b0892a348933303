"""What the page's script draws from: the run as JSON that no value can break out of."""

from __future__ import annotations

import json
from typing import Any

from distdemo.dtypes import DTYPES
from distdemo.trace.scheduling import Transfer
from distdemo.trace.tracing import Cell, Played, TraceReport
from distdemo.trace.view_page_words import SIGNS, runs, sentences
from distdemo.trace.view_words import wrong_words
from distdemo.view.numbers import number

Json = Any


def data_text(report: TraceReport) -> str:
    """JSON in ASCII without ``<``, ``>`` and ``&``, so that it may stand in a script element."""
    text = json.dumps(page_data(report), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(report: TraceReport) -> dict[str, Json]:
    """The run, as short as can be: 64 ranks in 126 rounds are half a million cells."""
    spec = report.spec.op
    return {
        "op": spec.op,
        "algorithm": report.about.name,
        "n": spec.group_size,
        "reduced": spec.reduce_op is not None,
        "sign": SIGNS.get(spec.reduce_op or "sum", "⊕"),
        "chunks": list(report.chunk_names),
        "wanted": [list(each) for each in report.wanted],
        "slots": _slots(report) if report.start else [],
        # Of a run that failed nobody knows what ranks held: there is no picture.
        "start": [[_cell(cell) for cell in cells] for cells in report.start] or None,
        "rounds": [_round(each, DTYPES[spec.dtype].itemsize) for each in report.rounds],
        "words": sentences(report) if report.start else [],
        "wrong": [
            {
                "rank": each.rank,
                "chunk": each.chunk,
                "since": len(report.rounds) if each.round is None else each.round,
                "words": wrong_words(each, report.chunk_names),
            }
            for each in report.wrong
        ],
    }


def _slots(report: TraceReport) -> list[list[int]]:
    """Of each rank the chunks that it holds at any time or should: each keeps its place."""
    found = [
        {*wanted, *(cell.chunk for cell in cells)}
        for wanted, cells in zip(report.wanted, report.start, strict=True)
    ]
    for each in report.rounds:
        for slots, cells in zip(found, each.arrived, strict=True):
            slots.update(cell.chunk for cell in cells)
    return [sorted(each) for each in found]


def _cell(cell: Cell) -> Json:
    """Its chunk, whose contributions as runs, whether it is complete, and its numbers."""
    values = [v if isinstance(v, str) else number(v) for v in cell.values]
    return [cell.chunk, runs(cell.ranks), int(cell.complete), values]


def _round(played: Played, itemsize: int) -> Json:
    return {
        "phase": played.step.phase,
        "messages": [_message(t, itemsize) for t in played.step.transfers if t.elements],
        "arrived": {
            rank: [_cell(cell) for cell in cells]
            for rank, cells in enumerate(played.arrived)
            if cells
        },
        "gone": {rank: list(gone) for rank, gone in enumerate(played.gone) if gone},
        "moments": [[each.began, each.ended] for each in played.moments],
    }


def _message(transfer: Transfer, itemsize: int) -> Json:
    return {
        "src": transfer.src,
        "dst": transfer.dst,
        "chunks": runs(sorted(transfer.chunks)),
        "bytes": transfer.elements * itemsize,
        "reduce": transfer.reduce,
        "original": transfer.original,
    }
