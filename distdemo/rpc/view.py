"""The calls as a timeline, then the losses and weights of the training over them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.rpc.records import RpcCall, RpcProof, RpcReport, Trainings, Value, apart, worker
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.format import duration, number, origin, plural, spread
from distdemo.view.tables import Cell, Column, Grid, fitting, heading

FEW = 8  # losses that are shown at most
CLAIMS = {
    "values": "Every call gave back the right value",
    "concurrency": "Two asynchronous calls were under way at once",
    "learning": "The loss fell",
    "losses": "Losses as in one process",
    "weights": "Weights as in one process",
}


def table(report: RpcReport, console: Console) -> Group:
    """The whole report of a world that went well."""
    sign, spec, training, world = signs(console), report.spec, report.training, report.world
    assert training is not None  # noqa: S101 - the runner shows no table of a world that failed
    learning = f"{plural(spec.steps, 'step')} of SGD, learning rate {spec.learning_rate:g}"
    parts: list[RenderableType] = [
        heading(f"rpc {sign.dot} {plural(world.world.world_size, 'worker')} {sign.dot} TensorPipe"),
        heading(f"What {worker(0)} called: when, how, what came back, and after how long, in ms"),
        fitting(console, lambda _: _timeline(report.calls, sign)),
        heading(f"Training {sign.dot} exclusive or {sign.dot} {learning}"),
        fitting(console, lambda _: _losses(training)),
        *(_proof(proof, sign) for proof in report.proofs),
        summary(report, console),
    ]
    took = f"{duration(training.time_s)} over RPC, {duration(training.local_time_s)}"
    footer = (
        f"The training took {took} in one process. Times are {worker(0)}'s.\n"
        "PyTorch calls RPC stable, and in maintenance mode.\n"
        f"{origin(world, report.versions)}"
    )
    return Group(*parts, Text(footer, style=colours.QUIET))


def summary(report: RpcReport, console: Console) -> Text:
    """Everything in one line."""
    sign = signs(console)
    failed = [CLAIMS[proof.claim] for proof in report.proofs if not proof.held]
    if failed:
        text = f"{sign.wrong} {len(failed)} of {len(report.proofs)} proofs failed: {failed[0]}."
        return Text(text, style=colours.WRONG)
    text = f"{sign.right} {len(report.calls)} calls right; trained over RPC as in one process."
    return Text(text, style=colours.RIGHT)


def _timeline(calls: Sequence[RpcCall], sign: Signs) -> Grid:
    """One row a call. Wrong values are long, so they may be broken into lines."""
    folds = not all(call.ok for call in calls)
    columns = [Column("Start", right=True), Column("Callee"), Column("Call")]
    grid = Grid([*columns, Column("Value", folds=folds), Column("Time", right=True)])
    for each in calls:
        value: Cell = _shown(each.value) or sign.none
        if not each.ok:
            text = f"{sign.wrong} {_shown(each.value)}, not {_shown(each.expected)}"
            value = Text(text, style=colours.WRONG)
        callee = _worker(each.callee.replace(", ", "\n"))
        called = f"{each.function} {each.what}".rstrip()
        times = [_milliseconds(seconds) for seconds in (each.start_s, each.time_s)]
        grid.rows.append([times[0], callee, called, value, times[1]])
    return grid


def _milliseconds(seconds: float) -> str:
    """``0.15``, ``4.35``, ``14.1``, ``301``: no more than four characters, up to ten seconds."""
    value = seconds * 1e3
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def _worker(name: str) -> Text:
    """In the colour of its rank; several of them in none."""
    rank = name.removeprefix("worker")
    return Text(name, style=colours.of_rank(int(rank)) if rank.isdigit() else "")


def _shown(value: Value) -> str:
    if isinstance(value, tuple):
        return "[" + " ".join(number(each) for each in value) + "]"
    return value if isinstance(value, str) else number(value)


def _losses(training: Trainings) -> Grid:
    names = ("After step", "Loss over RPC", "In one process", "Difference")
    grid = Grid([Column(name, right=True) for name in names])
    pairs = list(zip(training.losses, training.local_losses, strict=False))
    for step in spread(len(pairs), FEW):
        one, other = pairs[step]
        difference = _difference(apart([one], [other]))
        grid.rows.append([str(step), f"{one:.6g}", f"{other:.6g}", difference])
    return grid


def _difference(value: float) -> Text:
    return Text("0") if value == 0 else Text(f"{value:.3g}", style=colours.WRONG)


def _proof(proof: RpcProof, sign: Signs) -> Text:
    style = colours.RIGHT if proof.held else colours.WRONG
    text = f"{sign.right if proof.held else sign.wrong} {CLAIMS[proof.claim]}"
    if proof.tolerance is not None:
        text += f", within {proof.tolerance:g}" if proof.tolerance else ", bit for bit"
    found = "" if proof.held or proof.difference is None else f" ({proof.difference:.3g} apart)"
    return Text(f"{text}.{found}", style=style)
