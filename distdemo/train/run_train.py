"""``distdemo train``: read the data, train on the ranks, show what came of it, write the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from distdemo.cli.main_exits import AlreadyTold
from distdemo.cli.stage import Start, stage
from distdemo.cli.writing import write_made
from distdemo.demo.execute import check_backend, show_error, show_outcome
from distdemo.errors import EXIT_FAILED, EXIT_OK, DistdemoError
from distdemo.train.parse_train import TrainRequest, parse_train
from distdemo.train.records import MODES, Progress, TrainReport, TrainSpec

if TYPE_CHECKING:
    from distdemo.view.progress import Progress as Bar


def run_train(flags: dict[str, Any]) -> None:
    """``distdemo train``."""
    request = parse_train(flags)
    with stage(request.seat, request.world, f"train {request.spec}") as start:
        result = _run(request, start)
        unwritten = _write(result, request)
        with suppress(BrokenPipeError):  # a reader that left does not change the exit code
            _show(result, request)
        for error in unwritten:
            show_error(error)
        if unwritten:
            raise AlreadyTold(EXIT_FAILED)
        raise typer.Exit(EXIT_OK if result.ok else EXIT_FAILED)


# --------------------------------------------------------------------------------------- running


def _run(request: TrainRequest, start: Start) -> TrainReport:
    from distdemo.train.prepare import preload, prepare

    spec, world = request.spec, request.training_world
    with _progress(request) as bar:
        data = prepare(spec, world.world_size)
        request.check_memory(data)
        from distdemo.launcher.torch_import import load_torch

        load_torch()
        check_backend(world, request.seat)
        preload(world.device)
        from distdemo.train.main import train
        from distdemo.train.report import report

        return report(spec, start(world, train, (spec, data), hear=_follow(bar, spec)), data)


def _follow(bar: Bar, spec: TrainSpec) -> Callable[[int, Progress | None], None]:
    """Draws how far it is, at every word of a rank: the clock on the bar moves with them."""
    last: list[Progress] = []

    def hear(_: int, told: Progress | None) -> None:
        last[:] = [told] if told is not None else last
        for known in last:
            bar.advance(known.done, 0, _now(known, spec.epochs))

    return hear


@contextmanager
def _progress(request: TrainRequest) -> Iterator[Bar]:
    """A bar that counts the epochs of every mode and of the reference."""
    from distdemo.view.progress import Progress as Bar

    modes = len(MODES) if request.spec.mode == "compare" else 1
    shown = not request.view.quiet and (request.seat is None or request.seat.site == 0)
    with Bar(request.spec.epochs * (modes + 1), enabled=shown) as bar:
        yield bar


def _now(told: Progress, epochs: int) -> str:
    """Short: beside the bar an ordinary terminal has some 40 columns left."""
    return f"{told.mode} {told.epoch}/{epochs}, loss {told.loss:.2g}, {told.accuracy:.0%}"


# --------------------------------------------------------------------------------------- showing


def _show(result: TrainReport, request: TrainRequest) -> None:
    from distdemo.train.view_document import train_document
    from distdemo.train.view_table import train_table, verdict_line
    from distdemo.view.console import signs

    show_outcome(
        result.world,
        request.view,
        lambda: train_document(result, request.settings),
        lambda console: train_table(result, console),
        lambda console: verdict_line(result, signs(console)),
    )


def _write(result: TrainReport, request: TrainRequest) -> list[DistdemoError]:
    """Write the files; what went wrong is told once the result has been shown.

    Nothing is written of a world that failed: there is nothing to draw.
    """
    errors = []
    for flag, path, made in (("--plot", request.plot, _plot), ("--trace", request.trace, _trace)):
        try:
            write_made(flag, path if result.world.ok else None, partial(made, result))
        except DistdemoError as error:
            errors.append(error)
    return errors


def _plot(result: TrainReport, ending: str) -> bytes:
    from distdemo.train.view_plot import plot

    return plot(result, ending)


def _trace(result: TrainReport, _: str) -> bytes:
    from distdemo.train.view_trace import trace

    return trace(result).encode()
