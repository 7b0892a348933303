"""Measurements to request, and reports made up without ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recordings import with_changes

from distdemo import ops
from distdemo.backends.contract import Transport
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
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.measure.machine import Load
from distdemo.measure.timing import Harness, Start
from distdemo.ops.spec import OpSpec

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


def asked(*wanted: SeriesSpec, **settings: Any) -> BenchSpec:
    """Return a measurement without limits, by default of an all_reduce."""
    return BenchSpec(wanted or (series(),), **{"iters": 6, "limits": False, **settings})


def world(size: int = 2, backend: str = "gloo") -> WorldSpec:
    return WorldSpec(size, backend, deadline=120.0, stall=60.0, start_method="fork")


def alone(*args: Any, on_message: Any, **_: Any) -> WorldReport:
    """Start a world on this machine only."""
    return run_world(*args, on_message=on_message)


LATENCY_S = 2.9e-6
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


def setup(
    bandwidth: float = 7e9,
    *,
    ranks: int = 2,
    cores: float = 2,
    latency: float | None = LATENCY_S,
    transport: Transport = Transport.TCP,
    device: str = "cpu",
    load: Load | None = None,
) -> Setup:
    """Return the set-up of a machine with a transport of this bandwidth."""
    bound = TransportLimit(transport, bandwidth, 1 << 22, latency)
    return Setup(
        "gloo",
        device,
        ranks,
        launches=7,
        alignment=Alignment(Start.PAGE, 2.1e-6, 0.4e-6, 3.0e-6),
        harness=Harness(80e-9, 1.2e-6),
        limits=(bound,),
        bound=bound,
        cores=cores,
        ranks_per_host=ranks,
        start_method="fork",
        load=load or quiet(ranks),
    )


def quiet(ranks: int = 2, **changes: Any) -> Load:
    """Return the load of a machine that nothing disturbs, except for the changes."""
    return replace(Load(0.01, (9.0e9, 9.5e9, 9.1e9), (0.99,) * ranks), **changes)


def row(seconds: float, size: int, n: int = 2, *, noise: float = 0.01, **settings: Any) -> SizeRow:
    """Return seven launches of ten iterations; each launch is off by up to the noise."""
    launches = [[seconds * (1 + noise * ((launch * 3) % 7 - 3) / 3)] * 10 for launch in range(7)]
    known = {"checked": 2 * size // 4, "elements": size // 4, "busbw_factor": 2 * (n - 1) / n}
    return make_row(launches, 0.05, size_bytes=size, **known, **settings)


def rows(
    times: dict[int, float], n: int = 2, *, slower: float = 1.0, noise: float = 0.01
) -> list[SizeRow]:
    return [row(seconds * slower, size, n, noise=noise) for size, seconds in times.items()]


def report(
    made: list[SizeRow], where: Setup | None = None, left_out: tuple[int, ...] = (), **settings: Any
) -> BenchReport:
    """Return one series with these rows, judged as the controller does."""
    where = where or setup()
    sizes = (*(each.size_bytes for each in made), *left_out)
    spec = series(ranks=where.world_size, sizes_bytes=sizes, in_place=True)
    judged = tuple(
        replace(each, judgement=judge(each, made, where, where.world_size)) for each in made
    )
    traffic = spec.operation.traffic(spec.smallest)
    found = Series(spec, judged, "perf_counter", traffic.busbw_formula, traffic.payload_is)
    return BenchReport(
        BenchSpec((spec,)),
        **{
            "series": (found,),
            "setups": (where,),
            "elapsed_s": 12.3,
            "environment": {"host": "box", "processor": "EPYC", "cores": 2.0},
            "versions": {"distdemo": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
            **settings,
        },
    )
