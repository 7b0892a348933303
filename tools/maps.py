"""Read, merge and write capability maps (``maps/*.json``)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from distdemo.backends.capabilities import CapabilityMap, Note, ReleaseMap, value_in
from distdemo.versions import release_of


def fold(maps: Iterable[CapabilityMap], notes: Iterable[Note] = ()) -> ReleaseMap:
    """Merge the maps of several releases; each row has the releases at which it changed.

    Raises:
        ValueError: The maps have different backends, devices or dtypes.
    """
    ordered = sorted(maps, key=lambda each: release_of(each.torch))
    kinds = {(each.backend, each.device, each.dtypes) for each in ordered}
    if len(kinds) != 1:
        raise ValueError("maps with different backends, devices or dtypes can't be merged")
    ((backend, device, dtypes),) = kinds
    findings = tuple(dict.fromkeys(finding for each in ordered for finding in each.findings))
    newest_first = [name for each in reversed(ordered) for name in each.rows]
    rows: dict[str, dict[str, list[int]]] = {name: {} for name in dict.fromkeys(newest_first)}
    kinds_of_shape = dict.fromkeys(kind for each in ordered for kind in each.shapes)
    shapes: dict[str, dict[str, dict[str, str]]] = {kind: {} for kind in kinds_of_shape}
    for each in ordered:
        for name, changes in rows.items():
            row = [findings.index(each.findings[place]) for place in each.rows.get(name, ())]
            if row != (value_in(changes, each.torch) or []):
                changes[each.torch] = row
        for kind, forms in shapes.items():
            here = each.shapes.get(kind, {})
            for name in [*forms, *(other for other in here if other not in forms)]:
                finding = here.get(name, "")
                if finding != (value_in(forms.get(name, {}), each.torch) or ""):
                    forms.setdefault(name, {})[each.torch] = finding
    releases = tuple(each.torch for each in ordered)
    return ReleaseMap(backend, device, releases, dtypes, findings, rows, shapes, tuple(notes))


def written(found: ReleaseMap) -> str:
    """Return the file of this map, with one row per line."""
    text = json.dumps(
        {
            "written_by": "tools/probe.py on each release, folded by tools/releases.py",
            **asdict(found),
        },
        indent=1,
        ensure_ascii=False,
    )
    rows = re.sub(r"\[[\d,\s]*\]", lambda row: " ".join(row[0].split()).replace(" ]", "]"), text)
    return rows.replace("[ ", "[") + "\n"


def read(path: Path) -> CapabilityMap:
    """Read the map of one release, as ``tools/probe.py --output FILE`` writes it."""
    found = json.loads(path.read_text(encoding="utf-8"))
    for name in ("dtypes", "findings"):
        found[name] = tuple(found[name])
    return CapabilityMap(**found)
