"""The JSON document: one a command, versioned, always valid, also when the run failed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from distdemo.demo.reports import Explanation, HelloReport, OpReport
from distdemo.demo.view_records import (
    holding_entry,
    op_ranks,
    spec_entry,
    traffic_entry,
    wrong_entries,
)
from distdemo.errors import DistdemoError
from distdemo.launcher.records import WorldReport
from distdemo.view.endings import ending, error_entry, world_errors

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
        "spec": spec_entry(report.spec) | {"form": report.form, "calls": report.calls},
        "groups": [spec.members for spec in report.specs if spec.members is not None],
        "world": world_entry(report.world),
        "traffic": traffic_entry(report.traffic),
        "seconds": report.world.seconds,
        "notes": list(report.notes),
        "versions": report.versions,
    }
    if explanation is not None:
        content["explanation"] = _explanation(explanation)
    content["ranks"] = op_ranks(report)
    errors = world_errors(report.world) + wrong_entries(report)
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
        world=world_entry(world),
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


def world_entry(report: WorldReport) -> dict[str, Json]:
    """The world that ran, and how it was started."""
    world = report.world
    return {
        "world_size": world.world_size,
        "backend": world.backend,
        "device": world.device,
        "timeout": world.deadline,
        "launcher": report.engine,
        "hosts": list(report.hosts) or None,
        "start_method": report.start_method,
        "start_reason": report.start_reason,
    }


def _explanation(explanation: Explanation) -> dict[str, Json]:
    words = explanation.words
    return {
        "spec": spec_entry(explanation.spec),
        "summary": words.summary,
        "when": words.when,
        "mistake": words.mistake,
        "call": words.call,
        "traffic": traffic_entry(explanation.traffic),
        "notes": list(explanation.notes),
        "ranks": [
            {"rank": rank, "before": holding_entry(before), "after": holding_entry(after)}
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
