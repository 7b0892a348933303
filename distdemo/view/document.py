"""The JSON document: one a command, versioned, always valid, also when the run failed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from distdemo.errors import DistdemoError
from distdemo.launcher.records import WorldReport
from distdemo.view.endings import error_entry

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
