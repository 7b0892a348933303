"""Bench: measurements to request, and reports, files and rows made up without ranks."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import median
from typing import Any

from distdemo import ops
from distdemo.backends.contract import Transport
from distdemo.bench.files import BenchFile, comparable
from distdemo.bench.judge import judge
from distdemo.bench.records import (
    Alignment,
    BenchReport,
    BenchSpec,
    Series,
    SeriesSpec,
    Setup,
    SizeRow,
    TransportLimit,
)
from distdemo.bench.sweep import make_row
from distdemo.cli.runner import envelope
from distdemo.encoding import dumps, encode
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.measure.machine import Load
from distdemo.measure.timing import Harness, Start
from distdemo.ops.spec import Call, OpSpec

# ------------------------------------------------------------------------- requests, on real ranks

SMALL = (8, 4096)


def series(name: str = "all_reduce", ranks: int = 2, **changes: Any) -> SeriesSpec:
    """Return one op over gloo, with the settings that it requires."""
    op = ops.REGISTRY[name]
    variant = "list" if name == "gather" else "single"  # gloo has no gather_single
    own: dict[str, Any] = {"reduce_op": "sum", "root": 0, "variant": variant, "pattern": "ring"}
    own = {key: value for key, value in own.items() if key in op.takes}
    call = replace(op.call(OpSpec(name, ranks, shape=(), **own)), group_size=0)
    sizes = (0,) if op.is_barrier else SMALL
    return with_changes(SeriesSpec(call, "gloo", "cpu", ranks, sizes_bytes=sizes), **changes)


def with_changes(spec: SeriesSpec, **changes: Any) -> SeriesSpec:
    """Return the spec with other values of its own fields and of its call's."""
    names = {field.name for field in fields(SeriesSpec)} - {"op"}
    call = {name: value for name, value in changes.items() if name not in names}
    own = {name: value for name, value in changes.items() if name in names}
    return replace(spec, op=replace(spec.op, **call), **own)


def asked(*wanted: SeriesSpec, **settings: Any) -> BenchSpec:
    """Return a measurement without limits, by default of an all_reduce."""
    return BenchSpec(wanted or (series(),), **{"iters": 6, "limits": False, **settings})


def world(size: int = 2, backend: str = "gloo") -> WorldSpec:
    return WorldSpec(size, backend, deadline=120.0, stall=60.0, start_method="fork")


def alone(*args: Any, on_message: Any, **_: Any) -> WorldReport:
    """Start a world on this machine only."""
    return run_world(*args, on_message=on_message)


# --------------------------------------------------------------------------------- the machine

LATENCY_S = 2.9e-6


def setup(
    bandwidth: float = 7e9,
    *,
    ranks: int = 2,
    latency: float | None = LATENCY_S,
    transport: Transport = Transport.TCP,
    device: str = "cpu",
    **changes: Any,
) -> Setup:
    """Return the set-up of a machine with a transport of this bandwidth."""
    bound = TransportLimit(transport, bandwidth, 1 << 22, latency)
    settings: dict[str, Any] = {
        "launches": 7,
        "alignment": Alignment(Start.PAGE, 2.1e-6, 0.4e-6, 3.0e-6),
        "harness": Harness(80e-9, 1.2e-6),
        "limits": (bound,),
        "bound": bound,
        "cores": 2,
        "ranks_per_host": ranks,
        "start_method": "fork",
        "load": quiet(ranks),
    }
    return Setup("gloo", device, ranks, **(settings | changes))


def quiet(ranks: int = 2, **changes: Any) -> Load:
    """Return the load of a machine that nothing disturbs, except for the changes."""
    return replace(Load(0.01, (9.0e9, 9.5e9, 9.1e9), (0.99,) * ranks), **changes)


# ---------------------------------------------------------------------------- rows of a known shape

# Bytes and seconds of an all_reduce between two ranks over gloo, measured on two cores in one run.
GLOO = {
    8: 56e-6,
    1024: 70e-6,
    16384: 72e-6,
    65536: 77e-6,
    262144: 104e-6,
    1 << 20: 210e-6,
    1 << 22: 780e-6,
    1 << 24: 6.0e-3,
    1 << 25: 14.6e-3,
}


def row(seconds: float, size: int, n: int = 2, *, noise: float = 0.01, **settings: Any) -> SizeRow:
    """Return seven launches of ten iterations; each launch is off by up to the noise."""
    launches = [[seconds * (1 + noise * ((launch * 3) % 7 - 3) / 3)] * 10 for launch in range(7)]
    known = {"checked": 2 * size // 4, "elements": size // 4, "busbw_factor": 2 * (n - 1) / n}
    return make_row(launches, 0.05, size_bytes=size, **known, **settings)


def rows(
    times: dict[int, float], n: int = 2, *, slower: float = 1.0, noise: float = 0.01
) -> list[SizeRow]:
    return [row(seconds * slower, size, n, noise=noise) for size, seconds in times.items()]


# ------------------------------------------------------------------------ rows as they are recorded

SIZES = tuple(8 * 4**step for step in range(12))  # 8 B to 32 MiB


def hockney(size: int) -> float:
    """Return the seconds of a message over a link of 30 µs and 2 GB/s."""
    return 30e-6 + size * 0.5e-9


def one_row(
    size: int, seconds: float, *, seed: int = 0, launches: int = 8, noise: float = 0.05
) -> SizeRow:
    """Return a row with times that scatter within a launch, and half as much between launches."""
    rng = random.Random(f"{seed} {size}")
    times = []
    for _ in range(launches):
        centre = seconds * math.exp(rng.gauss(0, noise / 2))
        times.append([centre * math.exp(rng.gauss(0, noise)) for _ in range(9)])
    return row_of(size, times)


def row_of(size: int, times: Sequence[list[float]]) -> SizeRow:
    """Return a steady row with these times, one sequence per launch."""
    middle = median(time for launch in times for time in launch)
    made = make_row(times, 0.05, size_bytes=size, elements=size // 4, busbw_factor=1.0)
    return replace(made, interval_s=(middle, middle), steady=True)


# ------------------------------------------------------------------------------ reports and files


def one_series(rows: Sequence[SizeRow] | None = None, **more: Any) -> Series:
    """Return a series, by default an all-reduce of two ranks over gloo."""
    call = Call("all_reduce", dtype="float32", reduce_op="sum", in_place=True)
    spec = SeriesSpec(call, "gloo", "cpu", world_size=2, sizes_bytes=SIZES)
    made = [one_row(size, hockney(size)) for size in SIZES] if rows is None else rows
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


def report(
    made: list[SizeRow], where: Setup | None = None, left_out: tuple[int, ...] = (), **settings: Any
) -> BenchReport:
    """Return one series with these rows, judged as the controller does."""
    where = where or setup()
    sizes = (*(row.size_bytes for row in made), *left_out)
    spec = series(ranks=where.world_size, sizes_bytes=sizes, in_place=True)
    judged = tuple(
        replace(row, judgement=judge(row, made, where, where.world_size)) for row in made
    )
    traffic = spec.operation.traffic(spec.smallest)
    measured = Series(spec, judged, "perf_counter", traffic.busbw_formula, traffic.payload_is)
    return document(measured, **({"setups": (where,)} | settings))


def written(path: Path, report: BenchReport) -> str:
    """Write a report in bench's format and return the file's name."""
    content = envelope("bench", encode(report), ok=report.ok, errors=[])
    path.write_text(dumps(content), encoding="utf-8")
    return str(path)


def recording(file: str, *measured: Series, **more: Any) -> BenchFile:
    """Return a recording as read from a file of this name."""
    made = document(*measured, **more)
    return BenchFile(file, made, {comparable(one.spec): one for one in made.series})
