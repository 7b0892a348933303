"""Merge reports of ``distdemo check --probe`` into the capability maps.

    distdemo check --probe --backend nccl --output nccl.json
    python tools/maps.py nccl.json

A report covers one backend on one device in one release of torch. Its results replace those of the
same release in ``distdemo/backends/maps``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from distdemo import ops
from distdemo.backends import REGISTRY
from distdemo.backends.contract import CapabilityMap, Status, read_map, value_in
from distdemo.dtypes import DTYPES
from distdemo.ops.reduction import REDUCTIONS
from distdemo.versions import release_of

FORMS = [f"{op.name}/{form.name}" for op in ops.REGISTRY.values() for form in op.all_forms]
ROWS = [
    f"{form}{reduce_op}" for form in FORMS for reduce_op in ("", *(f" {r}" for r in REDUCTIONS))
]
"""Every possible row of a map, in order."""

WORKS: Status = "works"
Rows = dict[str, list[Status]]
Shapes = dict[str, dict[str, Status]]
Value = TypeVar("Value")

MAPS = Path(__file__).resolve().parents[1] / "distdemo" / "backends" / "maps"


def main() -> int:
    """Merge the reports that are named on the command line."""
    for name in sys.argv[1:]:
        document = json.loads(Path(name).read_text("utf-8"))
        if document["counts"]["not_run"]:
            sys.exit(f"{name} is incomplete.")
        map_name = REGISTRY[document["backend"]].map_name()
        file = MAPS / f"{map_name}.json"
        old = file.read_text("utf-8") if file.exists() else ""
        text = written(merged(read_map(file) if old else None, document))
        file.write_text(text, encoding="utf-8")
        print(f"{file.name} is {'unchanged' if text == old else 'changed: see git diff'}.")
    return 0


def merged(known: CapabilityMap | None, document: Mapping[str, Any]) -> CapabilityMap:
    """Return the map with the results of a probe.

    Args:
        known: Map of other releases, or None.
        document: JSON document of the probe.
    """
    probed = ".".join(map(str, release_of(document["versions"]["torch"])))
    if known is None:
        known = CapabilityMap(
            document["backend"], document["device"], (), tuple(DTYPES), (WORKS,), {}, {}
        )
    releases = sorted({probed, *known.releases}, key=release_of)
    rows, shapes = outcomes(document)
    findings = list(dict.fromkeys([*known.findings, *(f for row in rows.values() for f in row)]))

    def changes(old: Mapping[str, Value], new: Value, absent: Value) -> dict[str, Value]:
        """Return the values by the releases in which they change."""
        values = [new if name == probed else value_in(old, name) or absent for name in releases]
        return {
            name: value
            for name, value, before in zip(releases, values, [absent, *values], strict=False)
            if value != before
        }

    merged_rows = {}
    for row in sorted({*known.rows, *rows}, key=ROWS.index):
        numbers = [findings.index(finding) for finding in rows.get(row, ())]
        merged_rows[row] = changes(known.rows.get(row, {}), numbers, [])
    used = sorted({number for row in merged_rows.values() for r in row.values() for number in r})
    merged_shapes = {}
    for kind in ("scalar", "empty"):
        old = known.shapes.get(kind, {})
        forms = sorted({*old, *shapes[kind]}, key=FORMS.index)
        merged_shapes[kind] = {
            form: changes(old.get(form, {}), shapes[kind].get(form, "works"), "works")
            for form in forms
        }
    return replace(
        known,
        releases=tuple(releases),
        findings=tuple(findings[number] for number in used),
        rows={
            row: {name: [used.index(number) for number in numbers] for name, numbers in own.items()}
            for row, own in merged_rows.items()
        },
        shapes=merged_shapes,
    )


def outcomes(document: Mapping[str, Any]) -> tuple[Rows, Shapes]:
    """Return the findings of a probe: one per dtype by row, and by shape and form."""
    rows: Rows = {}
    shapes: Shapes = {"scalar": {}, "empty": {}}
    for case in document["cases"]:
        op, form_name = case["id"].split("/")[:2]
        form = f"{op}/{form_name.replace('-', ' ')}"
        reduce_op = case["op"].get("reduce_op")
        dtype = case["op"].get("dtype")
        kind = {(): "scalar", (0,): "empty"}.get(tuple(case["op"].get("shape", ())))
        status = case.get("failure", WORKS)
        if dtype and kind:
            if status != WORKS:
                shapes[kind][form] = status
            continue
        row = rows.setdefault(f"{form} {reduce_op}" if reduce_op else form, [WORKS] * len(DTYPES))
        for column, name in enumerate(DTYPES):
            if dtype in (name, None):
                row[column] = status
    return rows, shapes


def written(merged_map: CapabilityMap) -> str:
    """Return the file of this map, with one row per line."""
    text = json.dumps(
        {
            "written_by": "distdemo check --probe on each release, merged by tools/maps.py",
            **asdict(merged_map),
        },
        indent=1,
        ensure_ascii=False,
    )
    rows = re.sub(r"\[[\d,\s]*\]", lambda row: " ".join(row[0].split()).replace(" ]", "]"), text)
    return rows.replace("[ ", "[") + "\n"


if __name__ == "__main__":
    sys.exit(main())
