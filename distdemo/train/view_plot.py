"""Loss and test accuracy by epoch, drawn with matplotlib: a line a mode, and the reference.

Needs no display and no global state: the figure is made as an object, without pyplot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from distdemo.train.records import REFERENCE, Epoch, Run, TrainReport
from distdemo.view.numbers import plural
from distdemo.view.plot import SETTINGS, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (9.0, 4.2)  # inches
MARKS = 12  # that a line has at most
# The lines should lie on each other. Each is thinner than the one below it and has a mark of its
# own, so that all can be seen. The colours are told apart by the colour-blind too (Okabe and Ito).
STYLES: dict[str, dict[str, Any]] = {
    REFERENCE: {"color": "#bbbbbb", "linewidth": 7, "solid_capstyle": "round"},
    "manual": {"color": "#0072b2", "linewidth": 3.2, "marker": "o", "markersize": 9},
    "flat": {"color": "#e69f00", "linewidth": 2, "linestyle": "--", "marker": "s", "markersize": 6},
    "ddp": {"color": "#000000", "linewidth": 1, "linestyle": ":", "marker": "x", "markersize": 5},
}
WORDS = {REFERENCE: "one process", "flat": "flat buffer", "ddp": "DistributedDataParallel"}


def plot(report: TrainReport, kind: str) -> bytes:
    """The picture of a training that went to its end.

    Args:
        report: with a reference or a run at least.
        kind: ``png``, ``svg`` or ``pdf``.
    """
    runs = [run for run in (report.reference, *report.runs) if run is not None]
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=SIZE, layout="constrained")
        loss, accuracy = figure.subplots(1, 2)
        _draw(loss, runs, lambda epoch: epoch.loss)
        _draw(accuracy, runs, lambda epoch: epoch.accuracy)
        loss.set_ylabel("Training loss (cross entropy)")
        accuracy.set_ylabel("Test accuracy")
        accuracy.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
        _fit_accuracy(accuracy, runs)
        handles, names = loss.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(runs), frameon=False)
        figure.suptitle(_title(report))
        return saved(figure, kind)


def _draw(axes: Axes, runs: Sequence[Run], value: Callable[[Epoch], float]) -> None:
    for run in runs:
        numbers = range(1, len(run.epochs) + 1)
        every = max(1, math.ceil(len(numbers) / MARKS))
        style = STYLES.get(run.mode, {})
        name = WORDS.get(run.mode, run.mode)
        if run.mode == REFERENCE and len(numbers) == 1:
            style = style | {"marker": "o", "markersize": 14}  # a line of one point is none
        axes.plot(
            numbers, [value(each) for each in run.epochs], label=name, markevery=every, **style
        )
    axes.set_xlabel("Epoch")
    axes.margins(x=0.02)  # there is no epoch 0
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _fit_accuracy(axes: Axes, runs: Sequence[Run]) -> None:
    """Never above 100 %, but for the room that a line there needs."""
    low, high = axes.get_ylim()
    if any(epoch.accuracy > 0.9 for run in runs for epoch in run.epochs):
        axes.set_ylim(low, max(min(high, 1.005), low + 0.01))


def _title(report: TrainReport) -> str:
    spec, world = report.spec, report.world.world
    data = spec.dataset if report.task is None else report.task.words
    where = f"{plural(world.world_size, 'rank')} over {world.backend}"
    how = f"batch {spec.batch_size}, learning rate {spec.learning_rate:g}"
    return f"{data}: {where}, {how}"
