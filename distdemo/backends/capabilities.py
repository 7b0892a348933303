"""Capability maps: the calls that work on each backend, by torch release.

``distdemo check --probe`` finds them, and tools/maps.py writes them. ``maps/gloo.json`` covers all
probed releases of torch. It has one row per op, form and reduce op, with one number per dtype: the
index of the result in ``findings``; 0 means correct. ``shapes`` has the results for scalar (0-d)
and empty tensors of a form. Both are keyed by the releases in which they changed::

    "broadcast/tensor": {"2.8": [0, 1], "2.9": [0, 0]}

An empty row means that the call was removed in that release.

This module doesn't import torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from distdemo.versions import release_of

if TYPE_CHECKING:
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec

FOLDER = Path(__file__).parent / "maps"
WRONG = "gives a wrong result"
"""Finding for a call that returns a wrong result without an error."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class CapabilityMap:
    """A backend's capabilities in every probed release of torch.

    Attributes:
        backend: Name of the backend.
        device: Device of the tensors.
        releases: Probed releases, such as ``2.13``, oldest first.
        dtypes: Names of the columns.
        findings: Descriptions of the results; the first is empty and means correct.
        rows: Index into ``findings`` per dtype, by row and by the release in which it changed.
        shapes: Findings by ``scalar`` or ``empty``, form, and release in which it changed.
    """

    backend: str
    device: str
    releases: tuple[str, ...]
    dtypes: tuple[str, ...]
    findings: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Sequence[int]]]
    shapes: Mapping[str, Mapping[str, Mapping[str, str]]]

    def closest(self, version: str) -> str:
        """Return the probed release of this version of torch, else the closest older, or oldest."""
        older = [name for name in self.releases if release_of(name) <= release_of(version)]
        return older[-1] if older else self.releases[0]

    def finding(self, op: Op, spec: OpSpec, release: str) -> str:
        """Return the finding for this call, or "" if it works or wasn't probed."""
        row = value_in(self.rows.get(key(op, spec), {}), release)
        has_elements = not (spec.objects or op.is_barrier)
        column = spec.dtype if has_elements else "float32"
        if row and column in self.dtypes:
            finding = self.findings[row[self.dtypes.index(column)]]
            if finding:
                return finding
        if not has_elements or (spec.shape != () and spec.numel):
            return ""
        forms = self.shapes.get("scalar" if spec.shape == () else "empty", {})
        return value_in(forms.get(form_key(op, spec), {}), release) or ""

    def fixed_in(self, op: Op, spec: OpSpec, release: str) -> str | None:
        """Return the first later release in which the call works, or None."""
        changes = self.rows.get(key(op, spec), {})
        for later in self.releases[self.releases.index(release) + 1 :]:
            if value_in(changes, later) and not self.finding(op, spec, later):
                return later
        return None


def value_in(changes: Mapping[str, Value], release: str) -> Value | None:
    """Return the value in a release, given the values by the release that changed them."""
    earlier = [name for name in changes if release_of(name) <= release_of(release)]
    return changes[max(earlier, key=release_of)] if earlier else None


def form_key(op: Op, spec: OpSpec) -> str:
    """Return the op and its form, such as ``all_gather/single``."""
    return f"{op.name}/{op.form(spec).name}"


def key(op: Op, spec: OpSpec) -> str:
    """Return the name of a row, such as ``all_reduce/tensor max``."""
    return form_key(op, spec) + ("" if spec.reduce_op is None else f" {spec.reduce_op}")


@cache
def capability_map(name: str) -> CapabilityMap | None:
    """Return the map with this ``Backend.map_name``, or None."""
    file = FOLDER / f"{name}.json"
    return read_map(file) if file.exists() else None


def read_map(path: Path) -> CapabilityMap:
    """Read a file in ``maps``."""
    document = json.loads(path.read_text(encoding="utf-8"))
    del document["written_by"]
    for name in ("releases", "dtypes", "findings"):
        document[name] = tuple(document[name])
    return CapabilityMap(**document)
