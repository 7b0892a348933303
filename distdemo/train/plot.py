"""The files of a training: its curves as a picture, and its timeline for Perfetto."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distdemo.train.records import REFERENCE, Span, TrainReport
from distdemo.view.format import plural

# The lines should lie on each other. Each is thinner than the one below it and has a mark of its
# own, so that all can be seen.
STYLES: dict[str, dict[str, Any]] = {
    REFERENCE: {"color": "#bbbbbb", "linewidth": 7, "solid_capstyle": "round"},
    "manual": {"color": "#0072b2", "linewidth": 3.2, "marker": "o", "markersize": 9},
    "flat": {"color": "#e69f00", "linewidth": 2, "linestyle": "--", "marker": "s", "markersize": 6},
    "ddp": {"color": "#000000", "linewidth": 1, "linestyle": ":", "marker": "x", "markersize": 5},
}
NAMES = {REFERENCE: "one process", "flat": "flat buffer", "ddp": "DistributedDataParallel"}
MARKS = 12  # that a line has at most


def plot(report: TrainReport, path: Path) -> bytes:
    """Loss and test accuracy by epoch: a line a mode, and the reference."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    from distdemo.view.plot import SETTINGS, saved

    runs = [run for run in (report.reference, *report.runs) if run is not None]
    spec, world = report.spec, report.world.world
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(9.0, 4.2), layout="constrained")
        panels = zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True)
        for axes, what in panels:
            for run in runs:
                every = max(1, math.ceil(len(run.epochs) / MARKS))
                style = dict(STYLES[run.mode])
                if run.mode == REFERENCE and len(run.epochs) == 1:
                    style |= {"marker": "o", "markersize": 14}  # a line of one point is none
                values = [getattr(epoch, what) for epoch in run.epochs]
                name = NAMES.get(run.mode, run.mode)
                numbers = range(1, len(values) + 1)
                axes.plot(numbers, values, label=name, markevery=every, **style)
            axes.set_xlabel("Epoch")
            axes.margins(x=0.02)  # there is no epoch 0
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
            axes.set_ylabel("Test accuracy" if what == "accuracy" else "Loss (cross entropy)")
            if what == "accuracy":
                axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        handles, names = axes.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(runs), frameon=False)
        figure.suptitle(
            f"{report.task.data}: {plural(world.world_size, 'rank')} over {world.backend}, "
            f"batch {spec.batch_size}, learning rate {spec.learning_rate:g}"
        )
        return saved(figure, path.suffix[1:].lower())


def timeline(report: TrainReport) -> str:
    """What every rank did when, in the Trace Event Format of Perfetto and chrome://tracing.

    A process a rank, and in it a thread for computing and one for communication. Collectives that
    are under way at the same time (DDP's buckets) get a thread each. Moments count from the first
    one of each host.
    """
    hosts = report.world.hosts
    events: list[dict[str, Any]] = []
    for rank in range(report.world.world.world_size):
        host = {at for at, name in enumerate(hosts) if name == hosts[rank]} if hosts else None
        zero = min(
            (each.start_s for each in report.spans if host is None or each.rank in host),
            default=0.0,
        )
        events.append(_metadata("process_name", rank, name=f"rank {rank}"))
        events.append(_metadata("process_sort_index", rank, sort_index=rank))
        if hosts:
            events.append(_metadata("process_labels", rank, labels=hosts[rank]))
        own = [each for each in report.spans if each.rank == rank]
        thread = 0
        for track in ("compute", "communication"):
            lanes = _lanes([each for each in own if each.track == track])
            for number, lane in enumerate(lanes, start=1):
                name = track if number == 1 else f"{track} {number}"
                events.append(_metadata("thread_name", rank, thread, name=name))
                events.append(_metadata("thread_sort_index", rank, thread, sort_index=thread))
                events += (_complete(span, thread, zero) for span in lane)
                thread += 1
    world = report.world.world
    other = {"command": "distdemo train", "world_size": world.world_size, "backend": world.backend}
    document = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {**other, **report.versions},
    }
    return json.dumps(document, allow_nan=False) + "\n"


def _lanes(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans on as few lanes as it takes, so that none of a lane overlaps another."""
    lanes: list[list[Span]] = []
    for span in sorted(spans, key=lambda each: each.start_s):
        free = next((lane for lane in lanes if lane[-1].end_s <= span.start_s), None)
        if free is None:
            lanes.append([span])
        else:
            free.append(span)
    return lanes


def _metadata(kind: str, rank: int, thread: int = 0, **what: str | int) -> dict[str, Any]:
    # To a reader process 0 would be the system's idle process.
    return {"ph": "M", "name": kind, "pid": rank + 1, "tid": _thread(rank, thread), "args": what}


def _complete(span: Span, thread: int, zero: float) -> dict[str, Any]:
    """A span as a complete event: microseconds, from whole nanoseconds."""
    begin, end = round((span.start_s - zero) * 1e9), round((span.end_s - zero) * 1e9)
    size = {"bytes": span.size_bytes} if span.size_bytes else {}
    return {
        "ph": "X",
        "name": span.name,
        "cat": f"{span.track},{span.mode}",
        "pid": span.rank + 1,
        "tid": _thread(span.rank, thread),
        "ts": begin / 1e3,
        "dur": (end - begin) / 1e3,
        "args": {"mode": span.mode, "step": span.step, **size},
    }


def _thread(rank: int, thread: int) -> int:
    return (rank + 1) * 1000 + thread
