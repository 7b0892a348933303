"""The parts of a measurement as JSON entries, in seconds, bytes and bytes a second."""

from __future__ import annotations

from typing import Any

from distdemo.bench.old_records import BenchReport, RankSkew, Row, Series
from distdemo.bench.view_names import moves, op_spec
from distdemo.bench.yardsticks import Alignment, Gauge, Harness, Judgement, Limit, Overlap, Setup

Json = Any


def spec_entry(report: BenchReport) -> dict[str, Json]:
    """What was asked for; dtype and size of the world are those of the first series with one."""
    spec = report.spec
    first = spec.series[0] if spec.series else None
    op = next(filter(None, map(op_spec, filter(moves, spec.series))), None)
    return {
        "iters": spec.iters,
        "warmup": spec.warmup,
        "budget_seconds": spec.budget,
        "precision": spec.precision,
        "launches": spec.launches,
        "check_every": spec.check_every,
        "dtype": None if op is None else op.dtype,
        "world_size": None if first is None else first.world.world_size,
        "skew": spec.skew,
        "overlap": spec.overlap,
        "limits": spec.limits,
        "profile_harness": spec.profile,
    }


def setup_entry(setup: Setup) -> dict[str, Json]:
    """What the series of one backend have in common."""
    return {
        "backend": setup.world.backend,
        "device": setup.world.device,
        "world_size": setup.world.world_size,
        "launches": setup.launches,
        "start_method": setup.start_method,
        "engine": setup.engine,
        "hosts": list(setup.hosts),
        "cores": setup.cores,
        "ranks_per_host": setup.ranks_per_host,
        "alignment": setup.alignment and _alignment(setup.alignment),
        "harness": setup.harness and _harness(setup.harness),
        "limits": [_limit(limit) for limit in setup.limits],
        "bound": setup.bound and _limit(setup.bound),
        "gauges": [_gauge(gauge) for gauge in setup.gauges],
    }


def _alignment(alignment: Alignment) -> dict[str, Json]:
    return {
        "way": alignment.way,
        "seconds": alignment.seconds,
        "spread_seconds": alignment.spread,
        "spread_p99_seconds": alignment.spread_p99,
    }


def _harness(harness: Harness) -> dict[str, Json]:
    return {
        "inside_seconds": harness.inside,
        "outside_seconds": harness.outside,
        "iterations": harness.iterations,
    }


def _limit(limit: Limit) -> dict[str, Json]:
    return {
        "kind": limit.kind,
        "ranks": list(limit.ranks),
        "at_once": limit.at_once,
        "bandwidth_bytes_per_second": limit.bandwidth,
        "latency_seconds": limit.latency,
        "bytes": limit.size,
    }


def _gauge(gauge: Gauge) -> dict[str, Json]:
    return {"kind": gauge.kind, "times_seconds": [list(launch) for launch in gauge.times]}


def series_entry(series: Series) -> dict[str, Json]:
    """One op on one backend, with all its rows."""
    spec = series.spec
    op = op_spec(spec)
    return {
        "op": spec.command.replace("-", "_") if op is None else op.op,
        "command": spec.command,
        "form": spec.form,
        "calls": spec.calls,
        "backend": spec.backend,
        "device": spec.world.device,
        "world_size": spec.world.world_size,
        "group_size": None if op is None else op.group_size,
        "groups": len(spec.points[0].specs) if spec.points else 0,
        "dtype": op.dtype if op is not None and moves(spec) else None,
        "reduce_op": None if op is None else op.reduce_op,
        "root": None if op is None else op.root,
        "src": None if op is None else op.src,
        "dst": None if op is None else op.dst,
        "pattern": None if op is None else op.pattern,
        "async": op is not None and op.async_op,
        "in_place": spec.in_place,
        "clock": series.clock,
        "busbw_formula": series.formula,
        "payload_is": series.payload_words,
        "refused": spec.refused,
        "error": series.error,
        "skew": [_skew(each) for each in series.skew],
        "rows": [row_entry(row) for row in series.rows],
    }


def _skew(each: RankSkew) -> dict[str, Json]:
    return {
        "rank": each.rank,
        "late_seconds": each.late,
        "late_p99_seconds": each.late_p99,
        "last_share": each.last,
        "took_seconds": each.took,
        "waited_seconds": each.waited,
        "named": each.named,
    }


def row_entry(row: Row) -> dict[str, Json]:
    """One size, with the time of each iteration of each launch."""
    return {
        "bytes": row.size,
        "elements": row.elements,
        "iterations": row.iterations,
        "median_seconds": row.median,
        "p10_seconds": row.p10,
        "p90_seconds": row.p90,
        "p99_seconds": row.p99,
        "min_seconds": row.fastest,
        "max_seconds": row.slowest,
        "interval_seconds": None if row.interval is None else list(row.interval),
        "steady": row.steady,
        "busbw_factor": row.factor,
        "algbw_bytes_per_second": row.algbw,
        "busbw_bytes_per_second": row.busbw,
        "checked": row.checked,
        "wrong": row.wrong,
        "verdict": row.judgement and _judgement(row.judgement),
        "overlap": row.overlap and _overlap(row.overlap),
        "times_seconds": [list(launch) for launch in row.times],
    }


def _judgement(judgement: Judgement) -> dict[str, Json]:
    return {
        "kind": judgement.kind,
        "why": judgement.why,
        "hint": judgement.hint,
        "limit_share": judgement.share,
    }


def _overlap(overlap: Overlap) -> dict[str, Json]:
    return {
        "alone_seconds": overlap.alone,
        "compute_seconds": overlap.compute,
        "together_seconds": overlap.together,
        "hidden": overlap.hidden,
    }
