"""A traced run as a JSON document: every round, every transfer, what every rank then held."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.demo.records import Verification
from distdemo.demo.view_records import spec_entry, traffic_entry
from distdemo.dtypes import DTYPES
from distdemo.launcher.records import Returned
from distdemo.trace.scheduling import Fault, Transfer
from distdemo.trace.tracing import Cell, Moment, Played, TraceReport, TraceSpec, WrongChunk
from distdemo.trace.view_count_records import (
    about_entry,
    check_entry,
    counts_entry,
    misprint_entry,
    per_rank,
)
from distdemo.view.document import Json, envelope, world_entry
from distdemo.view.endings import ending, error_entry, world_errors
from distdemo.view.numbers import plural


def trace_document(report: TraceReport) -> dict[str, Json]:
    """The whole trace; ``ok`` exactly where ``errors`` is empty."""
    world = report.world
    return envelope(
        "trace",
        ok=report.ok,
        errors=_errors(report),
        mode="simulation" if world is None else "run",
        spec=_spec(report.spec),
        algorithm=about_entry(report.about),
        world=None if world is None else world_entry(world),
        seconds=None if world is None else world.seconds,
        world_size=report.spec.op.group_size,
        traffic=traffic_entry(report.traffic),
        chunks=_chunks(report),
        wanted=[list(chunks) for chunks in report.wanted],
        start=[[_cell(cell) for cell in cells] for cells in report.start],
        rounds=[_round(each, report) for each in report.rounds],
        **_counted(report),
        ranks=_ranks(report),
        wrong_chunks=[_wrong(each, report) for each in report.wrong],
        notes=list(report.notes),
        versions=dict(report.versions),
    )


def _chunks(report: TraceReport) -> list[Json]:
    named = zip(report.chunk_names, report.chunk_elements, strict=True)
    return [
        {"chunk": chunk, "name": name, "elements": elements}
        for chunk, (name, elements) in enumerate(named)
    ]


def _counted(report: TraceReport) -> dict[str, Json]:
    """Rounds and bytes: of the schedule, by formulas, and handed to the backend."""
    return {
        "counts": counts_entry(report.counts),
        "checks": [check_entry(check) for check in report.checks],
        "misprints": [misprint_entry(each) for each in report.misprints],
        "handed_bytes": per_rank(report.handed) if report.handed else None,
        "handed_total_bytes": sum(report.handed) if report.handed else None,
    }


def _spec(spec: TraceSpec) -> dict[str, Json]:
    return spec_entry(spec.op) | {
        "algorithm": spec.algorithm,
        "chunks": spec.chunks,
        "fault": None if spec.fault is None else _fault(spec.fault),
    }


def _fault(fault: Fault) -> dict[str, Json]:
    return {"kind": fault.kind, "round": fault.round, "src": fault.src}


# ------------------------------------------------------------------------------------------ rounds


def _round(each: Played, report: TraceReport) -> dict[str, Json]:
    """What was sent, what is new on each rank after it, and what is there no more."""
    size = _itemsize(report)
    return {
        "round": each.step.number,
        "phase": each.step.phase or None,
        "transfers": [_transfer(transfer, size) for transfer in each.step.transfers],
        "arrived": [[_cell(cell) for cell in cells] for cells in each.arrived],
        "gone": [list(chunks) for chunks in each.gone],
        "moments": [_moment(moment) for moment in each.moments] or None,
    }


def _transfer(transfer: Transfer, size: int) -> dict[str, Json]:
    return {
        "src": transfer.src,
        "dst": transfer.dst,
        "chunks": list(transfer.chunks),
        "elements": transfer.elements,
        "bytes": transfer.elements * size,
        "action": "reduce" if transfer.reduce else "copy",
        "original": transfer.original,
    }


def _itemsize(report: TraceReport) -> int:
    """Bytes of an element."""
    return DTYPES[report.spec.op.dtype].itemsize


def _cell(cell: Cell) -> dict[str, Json]:
    return {
        "chunk": cell.chunk,
        "ranks": list(cell.ranks),
        "values": list(cell.values),
        "complete": cell.complete,
        "wanted": cell.wanted,
    }


def _moment(moment: Moment) -> dict[str, Json]:
    return {"began_seconds": moment.began, "ended_seconds": moment.ended}


# -------------------------------------------------------------------------------- what came of it


def _ranks(report: TraceReport) -> list[Json]:
    """The verification of each rank, or how each ended if the world failed; none on paper."""
    if report.world is not None and not report.world.ok:
        return [ending(outcome) for outcome in report.world.outcomes]
    return [_verified(rank, each) for rank, each in _verifications(report)]


def _verified(rank: int, found: Verification) -> dict[str, Json]:
    return {
        "rank": rank,
        "verified": found.ok if found.checked else None,
        "checked": found.checked,
        "wrong": found.wrong,
        "tolerance": found.tolerance,
    }


def _verifications(report: TraceReport) -> Iterator[tuple[int, Verification]]:
    """Each with its rank: only ranks that returned have one."""
    outcomes = report.world.outcomes if report.world is not None else ()
    ranks = [each.rank for each in outcomes if isinstance(each, Returned)]
    yield from zip(ranks, report.verifications, strict=False)


def _wrong(each: WrongChunk, report: TraceReport) -> dict[str, Json]:
    return {
        "rank": each.rank,
        "chunk": each.chunk,
        "name": report.chunk_names[each.chunk],
        "element": each.element,
        "got": each.got,
        "expected": each.expected,
        "missing_ranks": list(each.missing),
        "extra_ranks": list(each.extra),
        "since_round": each.round,
    }


def _errors(report: TraceReport) -> list[Json]:
    """The world that failed; else an error for each rank with wrong chunks or elements."""
    if report.world is not None and not report.world.ok:
        return world_errors(report.world)
    found = {rank: _chunks_error(rank, report) for rank in _wrong_ranks(report)}
    for rank, each in _verifications(report):
        if not each.ok and rank not in found:
            what = f"Rank {rank} holds {plural(each.wrong, 'wrong element')} of {each.checked:,}."
            why = "The result differs from plain arithmetic on the inputs."
            found[rank] = error_entry(what, why, "") | {"ranks": [rank]}
    return list(found.values())


def _wrong_ranks(report: TraceReport) -> list[int]:
    return sorted({each.rank for each in report.wrong})


def _chunks_error(rank: int, report: TraceReport) -> dict[str, Json]:
    """All wrong chunks of a rank, and what is wrong with the first."""
    wrong = [each for each in report.wrong if each.rank == rank]
    names = ", ".join(report.chunk_names[each.chunk] for each in wrong)
    noun = "a wrong chunk" if len(wrong) == 1 else f"{len(wrong):,} wrong chunks"
    first = f"Chunk {report.chunk_names[wrong[0].chunk]}"
    error = error_entry(f"Rank {rank} holds {noun}: {names}.", f"{first} {_why(wrong[0])}", "")
    return error | {"ranks": [rank], "chunks": [each.chunk for each in wrong]}


def _why(each: WrongChunk) -> str:
    """Whose contribution is wrong, and since when: the end of a sentence about the chunk."""
    parts = []
    if each.missing:
        parts.append(f"lacks the contribution of {_named(each.missing)}")
    if each.extra:
        parts.append(f"has too much of {_named(each.extra)}")
    since = f" since round {each.round}" if each.round is not None else ""
    told = " and ".join(parts) or f"has {each.got} where {each.expected} should be"
    return f"{told}{since}."


def _named(ranks: tuple[int, ...]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"
