"""Reports of measurements that never were, with likely figures, for the tests of their views."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from distdemo.bench.old_records import (
    BenchReport,
    BenchSpec,
    RankSkew,
    Row,
    Series,
    SeriesSpec,
    Sized,
)
from distdemo.bench.yardsticks import Alignment, Gauge, Harness, Judgement, Limit, Overlap, Setup
from distdemo.launcher.records import Died, Stopped, Verdict, WorldReport, WorldSpec
from distdemo.ops.spec import OpSpec

ALPHA_BETA = {"gloo": (50e-6, 2.6e9), "mpi": (2e-6, 10e9)}
"""Seconds of the smallest message, and bytes a second of the largest."""
STREAM, COPY = 4e9, 8e9
SIZES = tuple(8 * 4**step for step in range(12))  # 8 B to 32 MiB
LAUNCHES = 6


def made_row(size: int, backend: str = "gloo", **more: Any) -> Row:
    """A size whose times scatter by a tenth, the same in every run."""
    start, bandwidth = ALPHA_BETA[backend]
    base = start + size / bandwidth
    noise = random.Random(size)
    times = tuple(
        tuple(base * (1 + 0.1 * noise.random()) for _ in range(20)) for _ in range(LAUNCHES)
    )
    every = sorted(time for launch in times for time in launch)
    median = every[len(every) // 2]
    fields: dict[str, Any] = {
        "size": size,
        "elements": size // 4,
        "factor": 1.0,
        "times": times,
        "median": median,
        "p10": every[len(every) // 10],
        "p90": every[len(every) * 9 // 10],
        "p99": every[-2],
        "fastest": every[0],
        "slowest": every[-1],
        "interval": (median * 0.97, median * 1.02),
        "steady": True,
        "checked": size // 2,
    }
    row = Row(**{**fields, **more})
    return row if "judgement" in more else replace(row, judgement=_judged(row))


def _judged(row: Row) -> Judgement:
    share = row.busbw / STREAM
    if row.size < 1 << 18:
        why = f"a message of 8 B takes 50 µs and this one {row.median * 1e6:.0f} µs"
        return Judgement("latency-bound", why, "send fewer and larger messages", share)
    if share > 0.5:
        return Judgement("close to the limit", f"{share:.0%} of a TCP stream", "", share)
    return Judgement("below the limit", f"only {share:.0%} of a TCP stream", "", share)


def made_spec(command: str = "all-reduce", backend: str = "gloo", **more: Any) -> SeriesSpec:
    """A series of two ranks over all sizes."""
    op = command.replace("-", "_")
    reduces = "sum" if "reduce" in op else None
    settings = {name: more.pop(name) for name in ("async_op", "dtype") if name in more}
    points = tuple(
        Sized(size, (OpSpec(op, 2, shape=(size // 4,), reduce_op=reduces, **settings),))
        for size in SIZES
    )
    fields = {"form": "tensor", "calls": op, "world": WorldSpec(2, backend), "points": points}
    return SeriesSpec(command, **{**fields, **more})


def made_series(
    command: str = "all-reduce",
    backend: str = "gloo",
    rows: tuple[Row, ...] | None = None,
    *,
    skew: tuple[RankSkew, ...] = (),
    error: str = "",
    **more: Any,
) -> Series:
    """A series that was measured to its end, unless told otherwise."""
    spec = made_spec(command, backend, **more)
    if rows is None:
        rows = tuple(made_row(size, backend) for size in SIZES)
    words = ("host", "2(n−1)/n", "bytes of one rank's tensor")
    return Series(spec, () if spec.refused else rows, *words, skew, error)


def made_setup(backend: str = "gloo", **more: Any) -> Setup:
    """How two ranks of one machine were measured."""
    limits = (
        Limit("memory copy", (0,), at_once=False, bandwidth=COPY, size=1 << 26),
        Limit("memory copy", (0, 1), at_once=True, bandwidth=6e9, size=1 << 26),
        Limit("TCP stream", (0, 1), False, STREAM, 1 << 22, 12e-6),
        Limit("TCP stream", (0, 1), True, 3.1e9, 1 << 22, 14e-6),
    )
    fields: dict[str, Any] = {
        "launches": 7,
        "alignment": Alignment("shared memory", 1.2e-6, 0.3e-6, 2.1e-6),
        "harness": Harness(0.15e-6, 0.9e-6, 10_000),
        "limits": limits,
        "bound": limits[2],
        "cores": 2.0,
        "ranks_per_host": 2,
        "start_method": "fork",
        "gauges": (
            Gauge("core to core", ((0.2e-6, 0.2e-6), (0.21e-6,), (), (0.19e-6, 0.21e-6, 0.4e-6))),
            Gauge("arithmetic", ((30e-6,), (31e-6,), (), (30e-6,))),
        ),
    }
    return Setup(WorldSpec(2, backend), **{**fields, **more})


def made_report(*series: Series, **more: Any) -> BenchReport:
    """A measurement of these series; of an all-reduce over gloo if there are none."""
    series = series or (made_series(),)
    wanted = {name: more.pop(name) for name in ("skew", "overlap", "profile") if name in more}
    backends = dict.fromkeys(each.spec.backend for each in series)
    fields: dict[str, Any] = {
        "spec": BenchSpec(tuple(each.spec for each in series), **wanted),
        "series": series,
        "setups": {name: made_setup(name) for name in backends},
        "seconds": 11.2,
        "environment": {"host": "box", "cores": 2, "processor": "Imaginary CPU <2> & more"},
        "versions": {"distdemo": "1.2.3", "torch": "2.13.0"},
    }
    return BenchReport(**{**fields, **more})


def made_skew(ranks: int = 4, late: int | None = 2) -> tuple[RankSkew, ...]:
    """Ranks of which one comes late."""
    return tuple(
        RankSkew(rank, 0.4e-3, 0.9e-3, 0.91, 60e-6, 0.0, named=True)
        if rank == late
        else RankSkew(rank, 2e-6, 9e-6, 0.03, 55e-6, 0.38e-3)
        for rank in range(ranks)
    )


def made_overlap(size: int) -> Overlap:
    """Six tenths of it are hidden."""
    start, bandwidth = ALPHA_BETA["gloo"]
    alone = start + size / bandwidth
    return Overlap(alone, alone, 1.4 * alone)


def made_failure(ranks: int = 2) -> WorldReport:
    """A world whose last rank was killed."""
    died = Died(rank=ranks - 1, signal=9)
    outcomes = (*(Stopped(rank=rank) for rank in range(ranks - 1)), died)
    verdict = Verdict("Rank 1 was killed by SIGKILL.", "Nobody knows by whom.", "Ask around.", (1,))
    return WorldReport(WorldSpec(ranks), outcomes, verdict, 3.2, "fork", "it is quick")
