"""Timeline of a training, as a file for Perfetto."""

from __future__ import annotations

import json
from typing import Any

from distdemo.train.records import COMPUTE, TrainReport


def as_trace_events(report: TrainReport) -> str:
    """Return all spans in the Trace Event Format of Perfetto and chrome://tracing.

    Each rank is a process with a thread for computation and one for communication. Collectives that
    overlap (DDP's buckets) have a thread each. Times start at 0 on each host.
    """
    world = report.world.world
    hosts = report.world.hosts or ("",) * world.world_size
    zero: dict[str, float] = {}
    for span in report.spans:
        host = hosts[span.rank]
        zero[host] = min(zero.get(host, span.start_s), span.start_s)

    # Viewers take process 0 for the system's idle process.
    def named(kind: str, rank: int, thread: int, name: str) -> dict[str, Any]:
        return {"ph": "M", "name": kind, "pid": rank + 1, "tid": thread, "args": {"name": name}}

    events = [
        named("process_name", rank, 0, f"rank {rank} {host}".rstrip())
        for rank, host in enumerate(hosts)
    ]
    tracks = sorted({span.track for span in report.spans}, key=lambda name: (name != COMPUTE, name))
    for rank, track in sorted({(span.rank, span.track) for span in report.spans}):
        events.append(named("thread_name", rank, tracks.index(track), track))
    for span in report.spans:  # microseconds, from whole nanoseconds
        begin, end = (
            round((at - zero[hosts[span.rank]]) * 1e9) for at in (span.start_s, span.end_s)
        )
        size = {"bytes": span.size_bytes} if span.size_bytes else {}
        events.append(
            {
                "ph": "X",
                "name": span.name,
                "cat": f"{span.track},{span.mode}",
                "pid": span.rank + 1,
                "tid": tracks.index(span.track),
                "ts": begin / 1e3,
                "dur": (end - begin) / 1e3,
                "args": {"mode": span.mode, "step": span.step, **size},
            }
        )
    other = {"command": "distdemo train", "world_size": world.world_size, "backend": world.backend}
    document = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {**other, **report.versions},
    }
    return json.dumps(document, allow_nan=False) + "\n"
