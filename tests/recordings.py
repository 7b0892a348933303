"""Artificial files of ``bench``: reports with times of a given noise."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import median
from typing import Any

from distdemo.backends.contract import Transport
from distdemo.bench.files import BenchFile, comparable
from distdemo.bench.records import (
    BenchReport,
    BenchSpec,
    Series,
    SeriesSpec,
    Setup,
    SizeRow,
    TransportLimit,
)
from distdemo.cli.runner import envelope
from distdemo.encoding import dumps, encode
from distdemo.ops.spec import Call

SIZES = tuple(8 * 4**step for step in range(12))  # 8 B to 32 MiB


def document(*series: Series, **more: Any) -> BenchReport:
    """Return a report, by default of one all-reduce."""
    fields: dict[str, Any] = {
        "series": series or (one_series(),),
        "setups": (setup(),),
        "elapsed_s": 9.9,
        "environment": {"host": "box", "processor": "Imaginary CPU", "cores": 2},
        "versions": {"distdemo": "1.2.3", "torch": "2.13.0"},
    }
    return BenchReport(BenchSpec(), **{**fields, **more})


def setup(speed: float = 1.0, latency: float = 1.0, **more: Any) -> Setup:
    """Return the set-up of a machine that copies and sends at a multiple of the usual speed."""
    limits = (
        TransportLimit(Transport.MEMORY_COPY, 6e9 * speed, 1 << 26),
        TransportLimit(Transport.TCP, 3e9 * speed, 1 << 22, 10e-6 * latency),
    )
    fields: dict[str, Any] = {
        "launches": 9,
        "limits": limits,
        "bound": limits[1],
        "start_method": "fork",
    }
    return Setup("gloo", "cpu", 2, **{**fields, **more})


def one_series(rows: Sequence[SizeRow] | None = None, **more: Any) -> Series:
    """Return a series, by default an all-reduce of two ranks over gloo."""
    call = Call("all_reduce", dtype="float32", reduce_op="sum", in_place=True)
    spec = SeriesSpec(call, "gloo", "cpu", world_size=2, sizes_bytes=SIZES)
    found = [one_row(size, hockney(size)) for size in SIZES] if rows is None else rows
    return Series(with_changes(spec, **more), tuple(found))


def with_changes(spec: SeriesSpec, **changes: Any) -> SeriesSpec:
    """Return the spec with other values of its own fields and of its call's."""
    own = {each.name for each in fields(SeriesSpec)} - {"op"}
    call = {name: value for name, value in changes.items() if name not in own}
    changes = {name: value for name, value in changes.items() if name in own}
    return replace(spec, op=replace(spec.op, **call), **changes)


def hockney(size: int, rounds: float = 1, share: float = 1) -> float:
    """Return the seconds of a message over a link of 30 µs and 2 GB/s."""
    return rounds * 30e-6 + share * size * 0.5e-9


def one_row(
    size: int,
    seconds: float,
    *,
    seed: int = 0,
    launches: int = 8,
    iterations: int = 9,
    noise: float = 0.05,
) -> SizeRow:
    """Return a row with times that scatter within a launch, and half as much between launches."""
    rng = random.Random(f"{seed} {size}")
    times = []
    for _ in range(launches):
        centre = seconds * math.exp(rng.gauss(0, noise / 2))
        times.append([centre * math.exp(rng.gauss(0, noise)) for _ in range(iterations)])
    return row_of(size, times)


def row_of(size: int, times: Sequence[Sequence[float]]) -> SizeRow:
    """Return a row with these times, one sequence per launch."""
    every = sorted(time for launch in times for time in launch)
    middle = median(every)
    ends = (every[0], every[-1])
    all_times = tuple(map(tuple, times))
    row = SizeRow(size, size // 4, 1.0, all_times, middle, *ends, every[-1], *ends)
    return replace(row, interval_s=(middle, middle), steady=True)


def written(path: Path, report: BenchReport) -> str:
    """Write a report in bench's format and return the file's name."""
    found = envelope("bench", encode(report), ok=report.ok, errors=[])
    path.write_text(dumps(found), encoding="utf-8")
    return str(path)


def recording(file: str, *series: Series, **more: Any) -> BenchFile:
    """Return a recording as read from a file of this name."""
    report = document(*series, **more)
    return BenchFile(file, report, {comparable(each.spec): each for each in report.series})
