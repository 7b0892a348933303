"""The backends and the map of one as JSON documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distdemo.check.records import BackendEntry, MapReport
from distdemo.check.view_backend_table import all_well, verdict
from distdemo.view.document import envelope
from distdemo.view.endings import error_entry

Json = Any


def backend_document(entries: Sequence[BackendEntry]) -> dict[str, Json]:
    """Which backends are here; an error for each that fails, or where none is."""
    found = [
        {
            "name": entry.name,
            "summary": entry.summary,
            "here": not entry.missing,
            "why_not": entry.missing or None,
            "how_to_get_it": entry.get or None,
            "version": entry.version or None,
            "devices": list(entry.devices),
            "works": entry.works,
            "tried": entry.tried or None,
        }
        for entry in entries
    ]
    failing = [entry for entry in entries if entry.works is False]
    errors = [error_entry(f"{entry.name} fails.", entry.tried, entry.get) for entry in failing]
    ok = all_well(entries)
    if not (ok or errors):
        errors = [error_entry(verdict(entries), "None could be tried.", "")]
    return envelope("backends", ok=ok, errors=errors, backends=found)


def map_document(report: MapReport) -> dict[str, Json]:
    """What a backend takes: for each operation and dtype null, or what happened."""
    found = report.found
    rows = [
        {
            "operation": name,
            "dtypes": {
                dtype: found.findings[row[place]] or None
                for place, dtype in enumerate(found.dtypes)
            },
        }
        for name, row in found.rows.items()
    ]
    return envelope(
        "backends",
        ok=True,
        backend=found.backend,
        torch=found.torch,
        device=found.device,
        operations=rows,
        shapes={kind: dict(forms) for kind, forms in found.shapes.items()},
        documentation_differs=list(report.disagreements),
        built_in_map_of_torch=report.known or None,
        built_in_map_differs=list(report.differences),
        tried=report.tried,
        worlds=report.worlds,
        seconds=report.seconds,
    )
