"""What a backend was seen to take, release by release: data that tools/probe.py has written.

``maps/gloo.json`` (``gloo@cuda.json`` would be the one for GPUs) holds all releases of torch that
were probed. For every op, form and reduce op it has a row with a number for each dtype: the place
of what happened in ``findings``, 0 being right. ``shapes`` holds what happened to the scalar (0-d)
and the empty tensors of a form. Each is written down for the releases at which it changed::

    "broadcast/tensor": {"2.8": [0, 1], "2.9": [0, 0]}

An empty row says that there is no such call from that release on. ``notes`` name PyTorch's issue
or change behind what works since a release.

Read with the standard library alone: no torch.
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
"""The finding of a call that returns as if all were well."""

Each = TypeVar("Each")


@dataclass(frozen=True, slots=True)
class CapabilityMap:
    """What a backend takes with one release of torch, as the probe found it.

    Attributes:
        backend: its name.
        torch: the release that it was probed on, ``2.13``.
        device: where the tensors were.
        dtypes: the columns.
        findings: what happened, in words; the first is empty, for right.
        rows: by op, form and reduce op, the finding's place for each dtype.
        shapes: for ``scalar`` and ``empty`` the findings of forms that don't take such tensors.
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
    """What is known of a change beside that it was seen.

    Attributes:
        rows: what the names of the rows begin with.
        release: the one that brought it.
        source: the issue or pull request of PyTorch, ``PyTorch issue 162338``.
        link: to it.
        dtypes: for which it holds; none: all.
    """

    rows: tuple[str, ...]
    release: str
    source: str
    link: str
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleaseMap:
    """What a backend takes with every release of torch that was probed.

    Attributes:
        releases: those that were, the oldest first.
        rows: of each the releases at which it changed, and what it was from then on.
        shapes: likewise; an empty finding is right.
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
        """The map of a release; of the newest older one that was probed, else of the oldest."""
        older = [each for each in self.releases if release_of(each) <= release_of(release)]
        chosen = older[-1] if older else self.releases[0]
        rows = {name: at(changes, chosen) for name, changes in self.rows.items()}
        there = {name: row for name, row in rows.items() if row}
        used = list(dict.fromkeys([0, *(place for row in there.values() for place in row)]))
        return CapabilityMap(
            self.backend,
            chosen,
            self.device,
            self.dtypes,
            tuple(self.findings[place] for place in used),
            {name: [used.index(place) for place in row] for name, row in there.items()},
            {
                kind: {name: bad for name, own in forms.items() if (bad := at(own, chosen))}
                for kind, forms in self.shapes.items()
            },
        )

    def mended(self, op: Op, spec: OpSpec, release: str) -> str | None:
        """The first release after this one in which it goes well; None: in none of them."""
        for each in self.releases:
            if release_of(each) > release_of(release):
                known = self.of(each)
                if key(op, spec) in known.rows and refusal(known, op, spec) is None:
                    return each
        return None

    def note(self, row: str, dtype: str, release: str) -> Note | None:
        """What is known of the change of this row and dtype with this release."""
        for each in self.notes:
            holds = each.release == release and row.startswith(each.rows)
            if holds and dtype in (each.dtypes or (dtype,)):
                return each
        return None


def at(changes: Mapping[str, Each], release: str) -> Each | None:
    """What holds in a release, of what is written down for the releases at which it changed."""
    held = [each for each in changes if release_of(each) <= release_of(release)]
    return changes[max(held, key=release_of)] if held else None


def refusal(found: CapabilityMap, op: Op, spec: OpSpec) -> str | None:
    """What happened when this was tried; None if it went well or was not tried."""
    row = found.rows.get(key(op, spec))
    column = "float32" if spec.objects or op.meets else spec.dtype
    if row is not None and column in found.dtypes:
        finding = found.findings[row[found.dtypes.index(column)]]
        if finding:
            return finding
    if spec.objects or op.meets or (spec.shape != () and spec.numel):
        return None
    kind = "scalar" if spec.shape == () else "empty"
    return found.shapes.get(kind, {}).get(form_key(op, spec))


def form_key(op: Op, spec: OpSpec) -> str:
    """The op and its form, ``all_gather/single``."""
    return f"{op.name}/{op.form(spec).name}"


def key(op: Op, spec: OpSpec) -> str:
    """The row of a map, ``all_reduce/tensor max``."""
    reduce_op = "" if spec.reduce_op is None else f" {spec.reduce_op}"
    return form_key(op, spec) + reduce_op


@cache
def by_release(name: str) -> ReleaseMap | None:
    """The map of this name, of all releases; None if there is none.

    Names are those of ``Backend.map_name``.
    """
    file = FOLDER / f"{name}.json"
    return read_releases(file) if file.exists() else None


@cache
def capabilities(name: str) -> CapabilityMap | None:
    """The map of this name for the installed torch; None if there is none.

    Of several releases the installed one's, else the newest that is older, else the oldest.
    """
    found = by_release(name)
    return None if found is None else found.of(torch_version())


def read_releases(path: Path) -> ReleaseMap:
    """The map in a file of ``maps``."""
    found = json.loads(path.read_text(encoding="utf-8"))
    found.pop("written_by", None)
    for name in ("releases", "dtypes", "findings"):
        found[name] = tuple(found[name])
    notes = [{**each, "rows": tuple(each["rows"])} for each in found.pop("notes", ())]
    notes = [{**each, "dtypes": tuple(each.get("dtypes", ()))} for each in notes]
    return ReleaseMap(**found, notes=tuple(Note(**each) for each in notes))
