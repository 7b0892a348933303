"""Measurements for the tests: small, and over in a moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distdemo import ops
from distdemo.bench.old_records import BenchSpec, SeriesSpec, Sized
from distdemo.launcher.records import WorldSpec
from distdemo.ops.spec import OpSpec

SMALL = (8, 4096)


def world(ranks: int = 2, backend: str = "gloo") -> WorldSpec:
    return WorldSpec(ranks, backend=backend, stall=20.0, deadline=60.0, capture=True)


def series(
    name: str = "all_reduce", ranks: int = 2, sizes: tuple[int, ...] = SMALL, **settings: Any
) -> SeriesSpec:
    op = ops.REGISTRY[name]
    base = OpSpec(name, ranks, shape=(1,))
    if "reduce_op" in op.takes:
        base = replace(base, reduce_op="sum")
    if "variant" in op.takes:
        base = replace(base, variant="single")
    base = replace(base, **settings)
    each = op.traffic(base).payload_bytes or 1
    points = [
        Sized(size, (replace(base, shape=() if op.meets else (size // each,)),)) for size in sizes
    ]
    form = op.form(base)
    return SeriesSpec(op.command, form.name, form.calls, world(ranks), tuple(points))


def spec(*all_series: SeriesSpec, **settings: Any) -> BenchSpec:
    settings = {"iters": 6, "limits": False} | settings
    return BenchSpec(all_series or (series(),), **settings)
