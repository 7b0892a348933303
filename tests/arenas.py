"""Algorithms side by side, counted from their schedules, with times that nobody measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from traces import about

from distdemo import ops
from distdemo.bench.fitting import Crossover, Link
from distdemo.dtypes import DTYPES
from distdemo.launcher.records import WorldSpec
from distdemo.ops.spec import OpSpec
from distdemo.trace.algorithms import of_op
from distdemo.trace.algorithms.plan import plan_of
from distdemo.trace.contending import Arena, CompareReport, Contender, LinkSource, Timing
from distdemo.trace.count import checks, count, misprints
from distdemo.trace.scheduling import About

LINK = LinkSource(Link(30e-6, 0.5e-9), "measured between ranks 0 and 1 of this world")
SLOWNESS = {"ring": 1.3, "naive": 0.9, "aggregator": 1.1}
"""Measured times as multiples of the predicted ones."""


def contest(
    op: str = "all_reduce",
    n: int = 4,
    sizes: Sequence[int] = (1 << 10, 1 << 24),
    *,
    link: LinkSource | None = LINK,
    simulated: bool = False,
    refused: str = "",
    **more: Any,
) -> CompareReport:
    """All algorithms of an op at these sizes.

    Args:
        op: torch's name.
        n: ranks.
        sizes: bytes of one rank's tensor, or of one piece.
        link: what the predictions stand on.
        simulated: on paper only.
        refused: the name of an algorithm that was not run.
        more: fields of the report.
    """
    arenas = tuple(_arena(_spec(op, n, size), link, simulated, refused) for size in sizes)
    crossings = (Crossover(31_234.5, "doubling", "halving-doubling"),)
    fields: dict[str, Any] = {
        "link": link,
        "crossovers": crossings if op == "all_reduce" and link else (),
        "simulated": simulated,
        "world": None if simulated else WorldSpec(n),
        "versions": {"distdemo": "1.2.3", "torch": "2.13.0"},
        "cores": None if simulated else 2.0,
    }
    return CompareReport(n, arenas, **{**fields, **more})


def _spec(op: str, n: int, size: int) -> OpSpec:
    takes = ops.REGISTRY[op].takes
    return OpSpec(
        op,
        n,
        shape=(size // DTYPES["float32"].itemsize,),
        reduce_op="sum" if "reduce_op" in takes else None,
        root=0 if "root" in takes else None,
    )


def _arena(spec: OpSpec, link: LinkSource | None, simulated: bool, refused: str) -> Arena:
    traffic = ops.REGISTRY[spec.op].traffic(spec)
    rows = [_contender(each.name, spec, link, simulated, refused) for each in of_op(spec.op)]
    if simulated:
        return Arena(spec, traffic, tuple(rows))
    time = 1e-4 + traffic.payload_bytes * 1e-9
    timing = Timing(time, time * 0.9, time * 1.2, 31, 0, spec.numel)
    own = Contender(About(spec.op, f"dist.{spec.op}", ""), own=True, timing=timing)
    order = "In the order of the model, but for ring: its rounds wait for the slowest rank."
    return Arena(spec, traffic, (own, *rows), (order,))


def _contender(
    name: str, spec: OpSpec, link: LinkSource | None, simulated: bool, refused: str
) -> Contender:
    found = next(each for each in of_op(spec.op) if each.name == name)
    plan = plan_of(found, spec.group_size, spec.numel)
    counts, payload = count(plan, 4), ops.REGISTRY[spec.op].traffic(spec).payload_bytes
    predicted = counts.seconds(link.link) if link else None
    time = (predicted or 1e-3) * SLOWNESS.get(name, 1.0)
    ran = not simulated and name != refused
    return Contender(
        about(plan),
        counts=counts,
        checks=checks(plan, counts, payload),
        misprints=misprints(found, spec.group_size, plan.sizes.chunks, payload),
        handed=counts.total if ran else None,
        timing=Timing(time, time * 0.97, time * 1.04, 31, 0, spec.numel * spec.group_size)
        if ran
        else None,
        predicted=predicted,
        shared=None if predicted is None or simulated else 2 * predicted,
        refused="" if ran or simulated else "it would take longer than --timeout",
    )
