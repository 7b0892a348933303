"""The files of a training: its curves as a picture, and its timeline for Perfetto."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from distdemo.train.records import COMPUTE, REFERENCE, TrainReport
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
                    style |= {"marker": "o", "markersize": 14}  # a line of one point can't be seen
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

    A process a rank, and in it a thread for computing and one for communication; of collectives
    that are under way at the same time (DDP's buckets) each has its own. Times count from the first
    one of each host.
    """
    world = report.world.world
    hosts = report.world.hosts or ("",) * world.world_size
    zero: dict[str, float] = {}
    for span in report.spans:
        host = hosts[span.rank]
        zero[host] = min(zero.get(host, span.start_s), span.start_s)

    # To a reader process 0 would be the system's idle process.
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
