"""The JSON document: one a command, versioned, always valid, also when the run failed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from distdemo.errors import DistdemoError
from distdemo.model import Holding, Mismatch, OpSpec, Piece, Traffic
from distdemo.outcomes import WorldReport
from distdemo.render.endings import ending, error_entry, world_errors
from distdemo.reports import Explanation, HelloReport, OpReport

SCHEMA_VERSION = 1

# An array of numbers over several lines. No string matches: a newline in it is written \\n.
_NUMBERS = re.compile(r"\[\n[\s\d.,eE+\-]*\]")

Json = Any


def dumps(document: Mapping[str, Json]) -> str:
    """The document as text: valid JSON, NaN and infinities as strings."""
    text = json.dumps(_valid(document), indent=2, allow_nan=False)
    return _NUMBERS.sub(lambda match: "[" + " ".join(match.group()[1:-1].split()) + "]", text)


def envelope(
    command: str, *, ok: bool, errors: Sequence[Json] = (), **content: Json
) -> dict[str, Json]:
    """What every document has, and then its content."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "ok": ok,
        **content,
        "errors": list(errors),
    }


def op_document(command: str, report: OpReport, explanation: Explanation | None = None) -> Json:
    """An op that ran: the spec, every rank's before, after and expected, the errors."""
    content: dict[str, Json] = {
        "spec": _spec(report.spec),
        "world": _world(report.world),
        "traffic": _traffic(report.traffic),
        "seconds": report.world.seconds,
        "notes": list(report.notes),
        "versions": report.versions,
    }
    if explanation is not None:
        content["explanation"] = _explanation(explanation)
    content["ranks"] = _op_ranks(report)
    errors = world_errors(report.world) + _wrong(report)
    return envelope(command, ok=report.ok, errors=errors, **content)


def hello_document(command: str, report: HelloReport) -> Json:
    """Every rank's introduction."""
    world = report.world
    ranks = [
        {
            "rank": each.rank,
            "world_size": each.world_size,
            "pid": each.pid,
            "host": each.host,
            "backend": each.backend,
            "device": each.device,
            "startup_seconds": each.startup_seconds,
            "heard_from": each.heard_from,
        }
        for each in report.ranks
    ] or [ending(outcome) for outcome in world.outcomes]
    return envelope(
        command,
        ok=report.ok,
        errors=world_errors(world),
        world=_world(world),
        seconds=world.seconds,
        versions=report.versions,
        ranks=ranks,
    )


def explain_document(command: str, explanation: Explanation) -> Json:
    """An op drawn without running it."""
    return envelope(command, ok=True, **_explanation(explanation))


def error_document(command: str, error: DistdemoError) -> Json:
    """A request that could not be carried out."""
    return envelope(command, ok=False, errors=[error_entry(error.what, error.why, error.hint)])


# ------------------------------------------------------------------------------------- the parts


def _spec(spec: OpSpec) -> dict[str, Json]:
    return {
        "op": spec.op,
        "world_size": spec.world_size,
        "dtype": spec.dtype,
        "shape": list(spec.shape),
        "reduce_op": spec.reduce_op,
        "root": spec.root,
        "src": spec.src,
        "dst": spec.dst,
        "pattern": spec.pattern,
        "async": spec.async_op,
    }


def _world(report: WorldReport) -> dict[str, Json]:
    world = report.world
    return {
        "world_size": world.world_size,
        "backend": world.backend,
        "device": world.device,
        "timeout": world.timeout,
        "start_method": report.start_method,
        "start_reason": report.start_reason,
    }


def _traffic(traffic: Traffic) -> dict[str, Json]:
    return {
        "payload_bytes": traffic.payload,
        "payload_is": traffic.payload_words,
        "busbw_factor": traffic.factor,
        "formula": traffic.formula,
        "bus_bytes": traffic.bus_bytes,
    }


def _op_ranks(report: OpReport) -> list[Json]:
    if not report.world.ok:
        return [ending(outcome) for outcome in report.world.outcomes]
    return [
        {
            "rank": record.rank,
            "takes_part": record.takes_part,
            "before": _holding(record.before),
            "after": _holding(record.after),
            "expected": _holding(record.expected),
            "verified": record.verification.ok if record.verification.checked else None,
            "checked": record.verification.checked,
            "wrong": record.verification.wrong,
            "tolerance": record.verification.tolerance,
            "seconds": record.seconds,
            "launch_seconds": record.launch_seconds,
            "wait_seconds": record.wait_seconds,
            "events": [
                {
                    "at_seconds": event.at,
                    "what": event.what,
                    "buffer": _holding(event.holds),
                    "unchanged": event.unchanged,
                }
                for event in record.events
            ],
        }
        for record in report.ranks
    ]


def _holding(holding: Holding) -> Json:
    """A nested list like the tensor's shape, a list of those, null for nothing, "undefined"."""
    if holding.undefined:
        return "undefined"
    if not holding.pieces:
        return None
    pieces = [_piece(piece) for piece in holding.pieces]
    if not holding.listed:
        return pieces[0]
    if holding.omitted:
        half = len(pieces) // 2
        return {
            "pieces": len(pieces) + holding.omitted,
            "first": pieces[:half],
            "last": pieces[half:],
        }
    return pieces


def _piece(piece: Piece) -> Json:
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


def _wrong(report: OpReport) -> list[Json]:
    return [
        error_entry(
            f"Rank {record.rank} holds {record.verification.wrong} wrong elements of "
            f"{record.verification.checked}.",
            "The result differs from plain arithmetic on the inputs.",
            "",
        )
        | {
            "ranks": [record.rank],
            "mismatches": [_mismatch(m) for m in record.verification.mismatches],
        }
        for record in report.ranks
        if not record.verification.ok
    ]


def _mismatch(miss: Mismatch) -> Json:
    return {
        "piece": miss.piece,
        "index": list(miss.index),
        "got": miss.got,
        "expected": miss.expected,
    }


def _explanation(explanation: Explanation) -> dict[str, Json]:
    words = explanation.words
    return {
        "spec": _spec(explanation.spec),
        "summary": words.summary,
        "when": words.when,
        "mistake": words.mistake,
        "call": words.call,
        "traffic": _traffic(explanation.traffic),
        "notes": list(explanation.notes),
        "ranks": [
            {"rank": rank, "before": _holding(before), "after": _holding(after)}
            for rank, before, after in zip(
                explanation.ranks, explanation.before, explanation.after, strict=True
            )
        ],
        "moves": [{"from": source, "to": target} for source, target in sorted(explanation.edges)],
    }


def _valid(value: Any) -> Json:  # noqa: ANN401 - any JSON-like value
    """The same with what JSON lacks as strings: NaN, infinities, complex numbers."""
    if isinstance(value, Mapping):
        return {str(key): _valid(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_valid(item) for item in value]
    if isinstance(value, complex):
        return str(value).strip("()")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
