"""What every rank did when, as a trace for Perfetto and chrome://tracing.

The Trace Event Format: a process a rank, and in it a thread for computing and one for
communication. The spans of a thread must not overlap unless one lies within the other, so
collectives that are under way at the same time (DDP's buckets) get a lane each: ``communication``,
``communication 2``, ...
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from distdemo.train.records import Span, TrainReport

COMMUNICATION = "communication"
TRACKS = ("compute", COMMUNICATION)
THREADS = 1000  # a process's threads are numbered from its own thousand: no number is used twice

Event = dict[str, Any]


def trace(report: TrainReport) -> str:
    """The spans of a report as a JSON object with ``traceEvents``."""
    events: list[Event] = []
    for rank in range(report.world.world.world_size):
        own = [span for span in report.spans if span.rank == rank]
        events += _process(rank, report.world.hosts)
        events += _threads(rank, own)
    document = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "command": "distdemo train",
            "world_size": report.world.world.world_size,
            "backend": report.world.world.backend,
            **report.versions,
        },
    }
    return json.dumps(document, allow_nan=False) + "\n"


def process_id(rank: int) -> int:
    """The process that stands for a rank: to a reader, 0 would be the system's idle process."""
    return rank + 1


def lanes(spans: Sequence[Span], *, nest: bool) -> list[list[Span]]:
    """Spans on as few lanes as it takes, so that none of a lane overlaps another in part.

    Args:
        spans: of one track of one rank.
        nest: one may lie within another.
    """
    found: list[list[Span]] = []
    still_open: list[list[int]] = []  # of each lane: the ends of spans that are not over yet
    for span in sorted(spans, key=lambda one: (_begin(one), -_end(one))):
        for lane, ends in zip(found, still_open, strict=True):
            while ends and ends[-1] <= _begin(span):
                ends.pop()
            if not ends or (nest and _end(span) <= ends[-1]):
                lane.append(span)
                ends.append(_end(span))
                break
        else:
            found.append([span])
            still_open.append([_end(span)])
    return found


def _begin(span: Span) -> int:
    """Whole nanoseconds: what begins where another ends does not overlap it by a rounding."""
    return round(span.start * 1e9)


def _end(span: Span) -> int:
    return round((span.start + span.seconds) * 1e9)


def _process(rank: int, hosts: Sequence[str]) -> Iterator[Event]:
    yield _metadata("process_name", rank, name=f"rank {rank}")
    yield _metadata("process_sort_index", rank, sort_index=rank)
    if hosts:
        yield _metadata("process_labels", rank, labels=hosts[rank])


def _threads(rank: int, spans: Sequence[Span]) -> Iterator[Event]:
    """The threads of a rank in order: each one's name, then what happened in it."""
    thread = process_id(rank) * THREADS
    for track in sorted({span.track for span in spans}, key=_place):
        own = [span for span in spans if span.track == track]
        for number, lane in enumerate(lanes(own, nest=track != COMMUNICATION), start=1):
            name = track if number == 1 else f"{track} {number}"
            yield _metadata("thread_name", rank, thread, name=name)
            yield _metadata("thread_sort_index", rank, thread, sort_index=thread)
            yield from (_complete(span, thread) for span in lane)
            thread += 1


def _place(track: str) -> tuple[int, str]:
    return (TRACKS.index(track) if track in TRACKS else len(TRACKS)), track


def _metadata(kind: str, rank: int, thread: int | None = None, **what: int | str) -> Event:
    process = process_id(rank)
    number = process * THREADS if thread is None else thread
    return {"ph": "M", "name": kind, "pid": process, "tid": number, "args": what}


def _complete(span: Span, thread: int) -> Event:
    """A span as a complete event, in microseconds."""
    args: dict[str, Any] = {"mode": span.mode, "step": span.step}
    if span.track == COMMUNICATION:
        args["bytes"] = span.size
    return {
        "ph": "X",
        "name": span.name,
        "cat": f"{span.track},{span.mode}",
        "pid": process_id(span.rank),
        "tid": thread,
        "ts": _begin(span) / 1e3,
        "dur": (_end(span) - _begin(span)) / 1e3,
        "args": args,
    }
