"""The backends and the map of one as JSON documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distdemo.render.document import envelope
from distdemo.reports import BackendEntry, MapReport

Json = Any


def backend_document(entries: Sequence[BackendEntry]) -> dict[str, Json]:
    """Which backends are here."""
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
    return envelope("backends", ok=all(e.works is not False for e in entries), backends=found)


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
