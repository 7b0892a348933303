"""What a backend was seen to take: data that the probe has written, one file a backend and release.

``maps/gloo-2.13.json`` (``gloo@cuda-2.13.json`` would be the one for GPUs) holds, for every op,
form and reduce op, a row with a number for each dtype: the place of what happened in ``findings``,
0 being right. ``shapes`` holds what happened to the scalar (0-d) and the empty tensors of a form,
where that was not right either.

Read with the standard library alone: no torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence  # the schema of the map needs them
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from distdemo.versions import torch_version

if TYPE_CHECKING:
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec

FOLDER = Path(__file__).parent / "maps"


@dataclass(frozen=True, slots=True)
class CapabilityMap:
    """What a backend takes, as the probe found it.

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
def capabilities(name: str) -> CapabilityMap | None:
    """The map of this name for the installed torch; None if there is none.

    Names are those of ``Backend.map_name``. Of several releases the installed one's, else the
    newest that is older, else the oldest.
    """
    paths = FOLDER.glob(f"{name}-*.json")
    files = {release_of(path.stem.rpartition("-")[2]): path for path in paths}
    if not files:
        return None
    installed = release_of(torch_version()) if len(files) > 1 else (0, 0)
    older = [release for release in files if release <= installed]
    return read(files[max(older) if older else min(files)])


def read(path: Path) -> CapabilityMap:
    """The map in a file, which may be what ``backends --probe gloo --output FILE`` wrote."""
    found = json.loads(path.read_text(encoding="utf-8"))
    found = found.get("map", found)
    found.pop("written_by", None)
    for name in ("dtypes", "findings"):
        found[name] = tuple(found[name])
    return CapabilityMap(**found)


def release_of(version: str) -> tuple[int, int]:
    """``(2, 13)`` of ``2.13.0+cpu``; (0, 0) of what is no version."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)
