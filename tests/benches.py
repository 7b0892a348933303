"""Bench: measurements to request, and reports, files and rows made up without ranks."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from distdemo import ops
from distdemo.bench.files import BenchFile
from distdemo.bench.judge import judge
from distdemo.bench.records import (
    BenchReport,
    BenchSpec,
    Series,
    SeriesSpec,
    Setup,
    SizeRow,
    StreamLimit,
)
from distdemo.bench.sweep import make_row
from distdemo.cli.runner import envelope
from distdemo.encoding import dumps, encode
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.ops.spec import Call, OpSpec

# ------------------------------------------------------------------------- requests, on real ranks


def series(name: str = "all_reduce", ranks: int = 2, **changes: Any) -> SeriesSpec:
    """Return one op over gloo at two sizes, with the settings that it requires."""
    op = ops.REGISTRY[name]
    variant = "list" if name == "gather" else "single"  # gloo has no gather_single
    own: dict[str, Any] = {"reduce_op": "sum", "root": 0, "variant": variant, "pattern": "ring"}
    own = {key: value for key, value in own.items() if key in op.takes}
    call = replace(op.call(OpSpec(name, ranks, shape=(), **own)), group_size=0)
    sizes = (0,) if op.is_barrier else (8, 4096)
    return with_changes(SeriesSpec(call, "gloo", "cpu", ranks, sizes_bytes=sizes), **changes)


def with_changes(spec: SeriesSpec, **changes: Any) -> SeriesSpec:
    """Return the spec with other values of its own fields and of its call's."""
    names = {field.name for field in fields(SeriesSpec)} - {"op"}
    call = {name: value for name, value in changes.items() if name not in names}
    own = {name: value for name, value in changes.items() if name in names}
    return replace(spec, op=replace(spec.op, **call), **own)


def asked(*wanted: SeriesSpec, **settings: Any) -> BenchSpec:
    """Return a measurement of few iterations, by default of an all_reduce."""
    return BenchSpec(wanted or (series(),), **{"iters": 1, **settings})


def world(size: int = 2, backend: str = "gloo") -> WorldSpec:
    return WorldSpec(size, backend, deadline=120.0, stall=60.0, start_method="fork")


def alone(*args: Any, on_message: Any, **_: Any) -> WorldReport:
    """Start a world on this machine only."""
    return run_world(*args, on_message=on_message)


# ---------------------------------------------------------------------- set-ups, rows and reports

SIZES = tuple(8 * 4**step for step in range(12))  # 8 B to 32 MiB


def setup(bandwidth: float = 7e9, **changes: Any) -> Setup:
    """Return the set-up of a quiet machine whose TCP streams have this bandwidth."""
    limit = StreamLimit(bandwidth, 2.9e-6)
    settings: dict[str, Any] = {"launches": 7, "taken_cores": 0.01, "cores": 2, "ranks_per_host": 2}
    return Setup("gloo", "cpu", 2, **{"limit": limit, **settings, **changes})


def row(seconds: float, size: int, *, noise: float = 0.01, **settings: Any) -> SizeRow:
    """Return an all_reduce of two ranks in seven launches; each is off by up to the noise."""
    launches = [[seconds * (1 + noise * ((launch * 3) % 7 - 3) / 3)] * 10 for launch in range(7)]
    known = {"elements": size // 4, "busbw_factor": 1.0, "checked": size // 2, **settings}
    return make_row(launches, size_bytes=size, **known)


def one_row(
    size: int, seconds: float, *, seed: int = 0, launches: int = 8, noise: float = 0.05
) -> SizeRow:
    """Return a row with times that scatter within a launch, and half as much between launches."""
    rng = random.Random(f"{seed} {size}")
    times = []
    for _ in range(launches):
        centre = seconds * math.exp(rng.gauss(0, noise / 2))
        times.append([centre * math.exp(rng.gauss(0, noise)) for _ in range(9)])
    return make_row(times, size_bytes=size, elements=size // 4, busbw_factor=1.0)


def hockney(size: int) -> float:
    """Return the seconds of a message over a link of 30 µs and 2 GB/s."""
    return 30e-6 + size * 0.5e-9


def one_series(rows: Sequence[SizeRow] | None = None, **more: Any) -> Series:
    """Return a series, by default an all-reduce of two ranks over gloo."""
    made = [one_row(size, hockney(size)) for size in SIZES] if rows is None else rows
    call = Call("all_reduce", dtype="float32", reduce_op="sum", in_place=True)
    sizes = tuple(row.size_bytes for row in made)
    spec = SeriesSpec(call, "gloo", "cpu", world_size=2, sizes_bytes=sizes)
    return Series(with_changes(spec, **more), tuple(made))


def document(*measured: Series, **more: Any) -> BenchReport:
    """Return a report, by default of one all-reduce."""
    measured = measured or (one_series(),)
    settings: dict[str, Any] = {
        "series": measured,
        "setups": (setup(),),
        "elapsed_s": 12.3,
        "environment": {"host": "box", "processor": "EPYC", "cores": 2},
        "versions": {"distdemo": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
    }
    return BenchReport(BenchSpec(tuple(one.spec for one in measured)), **(settings | more))


def report(made: list[SizeRow], where: Setup | None = None, **settings: Any) -> BenchReport:
    """Return one series with these rows, judged as the launcher does."""
    where = where or setup()
    judged = one_series([judge(row, where) for row in made])
    return document(judged, **({"setups": (where,)} | settings))


def written(path: Path, report: BenchReport) -> str:
    """Write a report in bench's format and return the file's name."""
    content = envelope("bench", encode(report), ok=report.ok, errors=[])
    path.write_text(dumps(content), encoding="utf-8")
    return str(path)


def recording(file: str, *measured: Series, **more: Any) -> BenchFile:
    """Return a recording as read from a file of this name."""
    return BenchFile(file, document(*measured, **more))
