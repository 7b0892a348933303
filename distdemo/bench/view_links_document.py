"""Every pair of ranks as a JSON document."""

from __future__ import annotations

from typing import Any

from distdemo.bench.linking import Link, LinksReport, LinksSpec
from distdemo.bench.view_links_table import links_verdict
from distdemo.view.document import envelope
from distdemo.view.endings import error_entry, world_errors
from distdemo.view.numbers import plural

Json = Any


def links_document(report: LinksReport) -> dict[str, Json]:
    """The whole report; ``ok`` exactly where ``errors`` is empty."""
    return envelope(
        "bench links",
        ok=report.ok,
        errors=_errors(report),
        spec=_spec(report.spec),
        environment=dict(report.environment),
        versions=dict(report.versions),
        seconds=report.seconds,
        interrupted=report.interrupted,
        engine=report.engine,
        start_method=report.start_method,
        hosts=list(report.hosts),
        links=[_link(link) for link in report.links],
        median_latency_seconds=report.latency,
        median_bandwidth_bytes_per_second=report.bandwidth,
        suspects=list(report.suspects),
        verdict=links_verdict(report),
        notes=list(report.notes),
    )


def _spec(spec: LinksSpec) -> dict[str, Json]:
    return {
        "world_size": spec.world.world_size,
        "backend": spec.world.backend,
        "device": spec.world.device,
        "small_bytes": spec.small,
        "large_bytes": spec.large,
        "iters": spec.iters,
        "budget_seconds": spec.budget,
        "rounds": spec.rounds,
        "factor": spec.factor,
    }


def _link(link: Link) -> dict[str, Json]:
    return {
        "from": link.src,
        "to": link.dst,
        "latency_seconds": link.latency,
        "bandwidth_bytes_per_second": link.bandwidth,
        "slow": link.slow,
        "wrong": link.wrong,
    }


def _errors(report: LinksReport) -> list[Json]:
    """The world that failed, each link with wrong elements, what was not measured."""
    errors = [] if report.failure is None else world_errors(report.failure)
    for link in report.links:
        if link.wrong:
            what = f"From rank {link.src} to {link.dst} wrong elements came."
            why = f"{plural(link.wrong, 'element')} differ from what was sent."
            errors.append(error_entry(what, why, "") | {"from": link.src, "to": link.dst})
    if report.interrupted:
        errors.append(error_entry("The measurement was interrupted.", links_verdict(report), ""))
    if not errors and not report.ok:
        errors.append(error_entry("Not every link was measured.", links_verdict(report), ""))
    return errors
