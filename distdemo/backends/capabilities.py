"""Capability maps: the calls that work on each backend, by torch release.

tools/probe.py writes the maps. ``maps/gloo.json`` covers all probed releases of torch. It has one
row per op, form and reduce op, with one number per dtype: the index of the result in ``findings``;
0 means correct. ``shapes`` has the results for scalar (0-d) and empty tensors of a form. Both are
keyed by the releases in which they changed::

    "broadcast/tensor": {"2.8": [0, 1], "2.9": [0, 0]}

An empty row means that the call was removed in that release. ``notes`` name the PyTorch issue or
pull request that fixed something.

This module doesn't import torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from distdemo.versions import release_of, torch_version

if TYPE_CHECKING:
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec

FOLDER = Path(__file__).parent / "maps"
WRONG = "gives a wrong result"
"""Finding for a call that returns a wrong result without an error."""

Each = TypeVar("Each")


@dataclass(frozen=True, slots=True)
class CapabilityMap:
    """A backend's capabilities in one release of torch, as probed.

    Attributes:
        backend: Name of the backend.
        torch: Release that was probed, such as ``2.13``.
        device: Device of the tensors.
        dtypes: Names of the columns.
        findings: Descriptions of the results; the first is empty and means correct.
        rows: Index into ``findings`` per dtype, by op, form and reduce op.
        shapes: Findings of the forms that reject ``scalar`` or ``empty`` tensors.
    """

    backend: str
    torch: str
    device: str
    dtypes: tuple[str, ...]
    findings: tuple[str, ...]
    rows: Mapping[str, Sequence[int]]
    shapes: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Note:
    """Source of a change between releases.

    Attributes:
        rows: Prefixes of the names of the changed rows.
        release: First release with the change.
        source: PyTorch issue or pull request, such as ``PyTorch issue 162338``.
        link: URL of the source.
        dtypes: Affected dtypes; empty for all.
    """

    rows: tuple[str, ...]
    release: str
    source: str
    link: str
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleaseMap:
    """A backend's capabilities in every probed release of torch.

    Attributes:
        releases: Probed releases, oldest first.
        rows: Rows by the releases in which they changed.
        shapes: The same for findings by shape; an empty finding means correct.
    """

    backend: str
    device: str
    releases: tuple[str, ...]
    dtypes: tuple[str, ...]
    findings: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Sequence[int]]]
    shapes: Mapping[str, Mapping[str, Mapping[str, str]]]
    notes: tuple[Note, ...] = ()

    def of(self, release: str) -> CapabilityMap:
        """Return the map of a release, or of the closest older one, or else of the oldest."""
        older = [each for each in self.releases if release_of(each) <= release_of(release)]
        chosen = older[-1] if older else self.releases[0]
        rows = {name: value_in(changes, chosen) for name, changes in self.rows.items()}
        there = {name: row for name, row in rows.items() if row}
        used = list(dict.fromkeys([0, *(index for row in there.values() for index in row)]))
        return CapabilityMap(
            self.backend,
            chosen,
            self.device,
            self.dtypes,
            tuple(self.findings[index] for index in used),
            {name: [used.index(index) for index in row] for name, row in there.items()},
            {
                kind: {name: bad for name, own in forms.items() if (bad := value_in(own, chosen))}
                for kind, forms in self.shapes.items()
            },
        )

    def fixed_in(self, op: Op, spec: OpSpec, release: str) -> str | None:
        """Return the first later release in which the call works, or None."""
        for each in self.releases:
            if release_of(each) > release_of(release):
                known = self.of(each)
                if key(op, spec) in known.rows and probed_finding(known, op, spec) is None:
                    return each
        return None

    def note(self, row: str, dtype: str, release: str) -> Note | None:
        """Return the note about a change to this row and dtype in this release, or None."""
        for each in self.notes:
            holds = each.release == release and row.startswith(each.rows)
            if holds and dtype in (each.dtypes or (dtype,)):
                return each
        return None


def value_in(changes: Mapping[str, Each], release: str) -> Each | None:
    """Return the value in a release, given the values by the release that changed them."""
    held = [each for each in changes if release_of(each) <= release_of(release)]
    return changes[max(held, key=release_of)] if held else None


def probed_finding(found: CapabilityMap, op: Op, spec: OpSpec) -> str | None:
    """Return the finding for this call, or None if it works or wasn't probed."""
    row = found.rows.get(key(op, spec))
    column = "float32" if spec.objects or op.is_barrier else spec.dtype
    if row is not None and column in found.dtypes:
        finding = found.findings[row[found.dtypes.index(column)]]
        if finding:
            return finding
    if spec.objects or op.is_barrier or (spec.shape != () and spec.numel):
        return None
    kind = "scalar" if spec.shape == () else "empty"
    return found.shapes.get(kind, {}).get(form_key(op, spec))


def form_key(op: Op, spec: OpSpec) -> str:
    """Return the op and its form, such as ``all_gather/single``."""
    return f"{op.name}/{op.form(spec).name}"


def key(op: Op, spec: OpSpec) -> str:
    """Return the name of a row, such as ``all_reduce/tensor max``."""
    reduce_op = "" if spec.reduce_op is None else f" {spec.reduce_op}"
    return form_key(op, spec) + reduce_op


@cache
def by_release(name: str) -> ReleaseMap | None:
    """Return the map with this ``Backend.map_name`` for all releases, or None."""
    file = FOLDER / f"{name}.json"
    return read_releases(file) if file.exists() else None


@cache
def capabilities(name: str) -> CapabilityMap | None:
    """Return the map with this name for the installed torch, or None.

    If the installed release wasn't probed, the closest older one is used, else the oldest.
    """
    found = by_release(name)
    return None if found is None else found.of(torch_version())


def read_releases(path: Path) -> ReleaseMap:
    """Read a file in ``maps``."""
    found = json.loads(path.read_text(encoding="utf-8"))
    found.pop("written_by", None)
    for name in ("releases", "dtypes", "findings"):
        found[name] = tuple(found[name])
    notes = [{**each, "rows": tuple(each["rows"])} for each in found.pop("notes", ())]
    notes = [{**each, "dtypes": tuple(each.get("dtypes", ()))} for each in notes]
    return ReleaseMap(**found, notes=tuple(Note(**each) for each in notes))
