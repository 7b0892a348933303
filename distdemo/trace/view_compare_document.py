"""A contest or a simulation as a JSON document; times in seconds, bytes as whole numbers."""

from __future__ import annotations

from typing import Any

from distdemo.bench.fitting import Link
from distdemo.demo.view_records import spec_entry, traffic_entry
from distdemo.launcher.records import WorldSpec
from distdemo.trace.contending import Arena, CompareReport, Contender, LinkSource, Timing
from distdemo.trace.view_amounts import whole_bytes
from distdemo.trace.view_compare_words import ASSUMPTIONS, verdict
from distdemo.trace.view_count_records import about_entry, check_entry, counts_entry, misprint_entry
from distdemo.trace.view_standings import fastest, name, ratio
from distdemo.view.document import Json, envelope
from distdemo.view.endings import error_entry, world_errors
from distdemo.view.numbers import plural


def compare_document(report: CompareReport) -> dict[str, Json]:
    """Every size and row; ``ok`` exactly where ``errors`` is empty."""
    errors = _errors(report)
    return envelope(
        "trace",
        ok=not errors,
        errors=errors,
        mode="simulation" if report.simulated else "compare",
        world_size=report.n,
        world=None if report.world is None else _world(report.world),
        cores=report.cores,
        interrupted=report.interrupted,
        link=None if report.link is None else _link(report.link),
        algorithms=_algorithms(report),
        sizes=[_arena(arena, report) for arena in report.arenas],
        crossovers=[
            {"bytes": each.size, "below": each.below, "above": each.above}
            for each in report.crossovers
        ],
        assumptions=list(ASSUMPTIONS) if report.link is not None else [],
        verdict=verdict(report),
        notes=list(report.notes),
        versions=dict(report.versions),
    )


def _world(world: WorldSpec) -> dict[str, Json]:
    """A contest ends by its patience, what the user calls its timeout, and not by another limit."""
    return {
        "world_size": world.world_size,
        "backend": world.backend,
        "device": world.device,
        "timeout": world.deadline if world.stall is None else world.stall,
        "start_method": world.start_method,
    }


def _link(source: LinkSource) -> dict[str, Json]:
    """That of the predictions; then those that the shared model goes by, where they are known."""
    others = {"lone": source.lone, "together": source.together}
    return {
        **_costs(source.link),
        "source": source.words,
        **{name: None if link is None else _costs(link) for name, link in others.items()},
    }


def _costs(link: Link) -> dict[str, Json]:
    return {
        "alpha_seconds": link.alpha,
        "beta_seconds_per_byte": link.beta,
        "bandwidth_bytes_per_second": 1 / link.beta if link.beta > 0 else None,
    }


def _algorithms(report: CompareReport) -> list[Json]:
    """Each once, in words."""
    found = {c.about.name: c.about for arena in report.arenas for c in arena.contenders}
    return [about_entry(about) for about in found.values()]


def _arena(arena: Arena, report: CompareReport) -> dict[str, Json]:
    best = fastest(arena)
    return {
        "bytes": arena.traffic.payload_bytes,
        "spec": spec_entry(arena.op),
        "traffic": traffic_entry(arena.traffic),
        "fastest": None if best is None else best.about.name,
        "order": list(arena.order),
        "rows": [_row(each, arena, report) for each in arena.contenders],
    }


def _row(each: Contender, arena: Arena, report: CompareReport) -> dict[str, Json]:
    return {
        "algorithm": each.about.name,
        "label": name(each, report),
        "own": each.own,
        "refused": each.refused or None,
        "counts": None if each.counts is None else counts_entry(each.counts),
        "checks": [check_entry(check) for check in each.checks],
        "misprints": [misprint_entry(found) for found in each.misprints],
        "handed_bytes": each.handed,
        "timing": None if each.timing is None else _timing(each.timing),
        "times_own": ratio(each, arena),
        "predicted_seconds": each.predicted,
        "predicted_shared_seconds": each.shared,
    }


def _timing(timing: Timing) -> dict[str, Json]:
    return {
        "median_seconds": timing.median,
        "interval_seconds": [timing.low, timing.high],
        "runs": timing.runs,
        "checked": timing.checked,
        "wrong": timing.wrong,
        "verified": timing.wrong == 0 if timing.checked else None,
    }


def _errors(report: CompareReport) -> list[dict[str, Any]]:
    """The world that failed, each row with wrong elements, and that it was interrupted."""
    found = [] if report.failure is None else world_errors(report.failure)
    for arena in report.arenas:
        found += [
            _wrong(each, each.timing, arena)
            for each in arena.contenders
            if each.timing is not None and each.timing.wrong
        ]
    if report.interrupted:
        why = f"A signal ended it after {plural(len(report.arenas), 'size')}."
        found.append(error_entry("The measurement was interrupted.", why, ""))
    if not found and not report.ok:
        found.append(error_entry(verdict(report), "", ""))
    return found


def _wrong(each: Contender, timing: Timing, arena: Arena) -> dict[str, Json]:
    size = arena.traffic.payload_bytes
    what = f"{each.about.name} gave wrong elements at {whole_bytes(size)}."
    why = f"{timing.wrong:,} of {timing.checked:,} differ from plain arithmetic."
    return error_entry(what, why, "") | {"algorithm": each.about.name, "bytes": size}
