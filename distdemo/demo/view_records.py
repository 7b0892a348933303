"""Specs, holdings and verifications as parts of a JSON document."""

from __future__ import annotations

import math
from typing import Any

from distdemo.demo.holdings import Holding, Mismatch, Piece, RankRecord, Thing
from distdemo.demo.reports import OpReport
from distdemo.ops.contract import Traffic
from distdemo.ops.spec import OpSpec
from distdemo.view.endings import ending, error_entry

Json = Any


def spec_entry(spec: OpSpec) -> dict[str, Json]:
    """What was asked for."""
    return {
        "op": spec.op,
        "world_size": spec.group_size,
        "dtype": spec.dtype,
        "shape": list(spec.shape),
        "reduce_op": spec.reduce_op,
        "root": spec.root,
        "src": spec.src,
        "dst": spec.dst,
        "pattern": spec.pattern,
        "async": spec.async_op,
        "variant": spec.variant,
        "objects": spec.objects,
        "sizes": spec.sizes,
        "splits": spec.splits,
        "group": spec.members,
        "inference_mode": spec.inference,
        "monitored": spec.monitored,
        "straggler": spec.straggler,
        "seed": spec.seed,
    }


def traffic_entry(traffic: Traffic) -> dict[str, Json]:
    """What the op moves."""
    return {
        "payload_bytes": traffic.payload_bytes,
        "payload_is": traffic.payload_is,
        "busbw_factor": traffic.busbw_factor,
        "formula": traffic.busbw_formula,
        "bus_bytes": traffic.bus_bytes,
    }


def op_ranks(report: OpReport) -> list[Json]:
    """Every rank's record, or how each ended if the world failed."""
    if not report.world.ok:
        return [ending(outcome) for outcome in report.world.outcomes]
    return [_record(record) for record in report.ranks]


def _record(record: RankRecord) -> dict[str, Json]:
    entry: dict[str, Json] = {
        "rank": record.rank,
        "group_rank": record.group_rank,
        "group": None if record.group_rank is None else record.group,
        "takes_part": record.takes_part,
        "before": holding_entry(record.before),
        "after": holding_entry(record.after),
        "expected": holding_entry(record.expected),
        "verified": record.verification.ok if record.verification.checked else None,
        "checked": record.verification.checked,
        "wrong": record.verification.wrong,
        "tolerance": record.verification.tolerance,
        "seconds": record.seconds,
        "launch_seconds": record.launch_seconds,
        "wait_seconds": record.wait_seconds,
        "clock": record.clock,
        "events": [
            {
                "at_seconds": event.at,
                "what": event.what,
                "buffer": holding_entry(event.holds),
                "unchanged": event.unchanged,
            }
            for event in record.events
        ],
    }
    sizes = [piece.size for piece in record.before.pieces if isinstance(piece, Thing)]
    if sizes:
        entry["pickled_bytes"] = sizes
    if record.steps:
        entry["steps"] = [
            {"step": step.name, "holds": holding_entry(step.holds), "sent_bytes": step.sent}
            for step in record.steps
        ]
    if record.attendance is not None:
        came = record.attendance
        entry["attendance"] = {
            "arrived_seconds": came.arrived,
            "left_seconds": came.left,
            "had_come": came.present,
        }
    return entry


def holding_entry(holding: Holding) -> Json:
    """A nested list like the tensor's shape, a list of those, null for nothing, "undefined"."""
    if holding.undefined:
        return "undefined"
    if not holding.pieces:
        return None
    pieces = [_piece(piece) for piece in holding.pieces]
    if holding.joined and not holding.omitted and all(map(_is_whole, holding.pieces)):
        return _joined(holding, pieces)
    if not (holding.listed or holding.joined):
        return pieces[0]
    if holding.omitted:
        half = len(pieces) // 2
        return {
            "pieces": len(pieces) + holding.omitted,
            "first": pieces[:half],
            "last": pieces[half:],
        }
    return pieces


def _joined(holding: Holding, pieces: list[Json]) -> list[Json]:
    """A single tensor's elements, the pieces one after the other along its first dimension."""
    scalars = isinstance(holding.pieces[0], Piece) and holding.pieces[0].shape == ()
    return pieces if scalars else [row for piece in pieces for row in piece]


def _is_whole(piece: Piece | Thing) -> bool:
    return isinstance(piece, Piece) and not piece.tail


def _piece(piece: Piece | Thing) -> Json:
    if isinstance(piece, Thing):
        return piece.value
    if piece.tail:
        return {
            "shape": list(piece.shape),
            "elements": math.prod(piece.shape),
            "first": list(piece.head),
            "last": list(piece.tail),
        }
    return _nested(list(piece.head), piece.shape)


def _nested(values: list[Any], shape: tuple[int, ...]) -> Json:
    if not shape:
        return values[0]
    if len(shape) == 1:
        return values
    step = len(values) // shape[0] if shape[0] else 0
    return [_nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def wrong_entries(report: OpReport) -> list[Json]:
    """An error for each rank that holds something wrong, or was let go too early."""
    noun = "objects" if report.spec.objects else "elements"
    return [
        error_entry(*_wrong(record, noun), "")
        | {
            "ranks": [record.rank],
            "mismatches": [_mismatch(m) for m in record.verification.mismatches],
        }
        for record in report.ranks
        if not record.verification.ok
    ]


def _wrong(record: RankRecord, noun: str) -> tuple[str, str]:
    """What is wrong, and why that is wrong."""
    verification = record.verification
    if record.attendance is not None and verification.mismatches:
        miss = verification.mismatches[0]
        what = f"Rank {record.rank} was let go when {miss.got} of {miss.expected} had come."
        return what, "A barrier lets nobody go before all have come."
    what = f"Rank {record.rank} holds {verification.wrong} wrong {noun} of {verification.checked}."
    if noun == "objects":
        return what, "They are not the ones that were sent."
    return what, "The result differs from plain arithmetic on the inputs."


def _mismatch(miss: Mismatch) -> Json:
    return {
        "piece": miss.piece,
        "index": list(miss.index),
        "got": miss.got,
        "expected": miss.expected,
    }
