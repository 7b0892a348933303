"""Calls between workers as a timeline, then the losses and weights of the training over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.rpc.records import Call, Lesson, Proof, RpcReport, Value, Weights, apart, name_of
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.frame import heading
from distdemo.view.grid import Cell, Column, Grid, fitting
from distdemo.view.numbers import ROOMS, duration, number, plural

FEW_CALLS = 4  # equal calls to several workers of which all are shown
FEW_LOSSES = 8  # losses of which all are shown
ENDS = 3  # losses shown at each end of more than that


def rpc_table(report: RpcReport, console: Console) -> Group:
    """The whole report of a world that went well.

    Raises:
        ValueError: it did not.
    """
    lesson = report.lesson
    if lesson is None:
        raise ValueError("this world did not bring back what was called")
    sign = signs(console)
    workers = plural(report.world.world.world_size, "worker")
    spec = report.spec
    learning = f"{plural(spec.steps, 'step')} of SGD, learning rate {spec.learning_rate:g}"
    parts: list[RenderableType] = [
        heading(f"rpc {sign.dot} {workers} {sign.dot} TensorPipe {sign.dot} cpu"),
        heading(f"What {name_of(0)} called: when, how, what came back, and after how long, in ms"),
        fitting(console, lambda room: _timeline(lesson.calls, sign, broken=room < ROOMS[0])),
        heading(f"Training {sign.dot} exclusive or {sign.dot} {learning}"),
        fitting(console, lambda _: _losses(lesson, sign)),
        heading("Its weights, pulled back, beside those of the same training in one process"),
        fitting(console, lambda _: _weights(lesson.weights, sign)),
        *(_proof(proof, sign) for proof in report.proofs),
        verdict_line(report, sign),
        Text("\n".join(_footer(report, lesson)), style=colours.QUIET),
    ]
    return Group(*parts)


def verdict_line(report: RpcReport, sign: Signs) -> Text:
    """Everything in one line."""
    failed = [proof for proof in report.proofs if not proof.held]
    if failed:
        text = (
            f"{sign.wrong} {len(failed)} of {len(report.proofs)} proofs failed: {failed[0].claim}"
        )
        return Text(f"{text} Found: {failed[0].found}.", style=colours.WRONG)
    calls = len(report.lesson.calls) if report.lesson else 0
    text = f"{sign.right} {calls} calls right; trained over RPC as in one process."
    return Text(text, style=colours.RIGHT)


# --------------------------------------------------------------------------------------- timeline


def _timeline(calls: Sequence[Call], sign: Signs, *, broken: bool) -> Grid:
    """One row a call; ``broken``: a line for each of several callees, where there is little room.

    Values that are wrong are long, so they may be broken into lines; right ones are not.
    """
    grid = Grid(
        [
            Column("Start", right=True),
            Column("Callee"),
            Column("Call"),
            Column("Value", folds=not all(call.ok for call in calls)),
            Column("Time", right=True),
        ]
    )
    for each in _selected(calls):
        if isinstance(each, int):
            grid.rows.append([sign.more, "", f"{each} more of these", "", ""])
            continue
        grid.rows.append(
            [
                _milliseconds(each.start),
                _worker(each.callee.replace(", ", "\n" if broken else ", ")),
                each.words,
                _value(each, sign),
                _milliseconds(each.seconds),
            ]
        )
    return grid


def _selected(calls: Sequence[Call]) -> Iterator[Call | int]:
    """All calls; of many equal ones to many workers the first, the last and whatever is wrong."""
    left_out = 0
    for call in calls:
        same = [each for each in calls if each.what == call.what and each.kind == call.kind]
        ends = (*same[: FEW_CALLS - 2], same[-1])
        if len(same) > FEW_CALLS and call.ok and not any(call is each for each in ends):
            left_out += 1
            continue
        if left_out:
            yield left_out
            left_out = 0
        yield call


def _milliseconds(seconds: float) -> str:
    """``0.15``, ``4.35``, ``14.1``, ``301``: no more than four characters, up to ten seconds."""
    value = seconds * 1e3
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def _worker(name: str) -> Text:
    """In the colour of its rank; several of them in none."""
    rank = name.removeprefix("worker")
    return Text(name, style=colours.of_rank(int(rank)) if rank.isdigit() else "")


def _value(call: Call, sign: Signs) -> Cell:
    if call.ok:
        return _shown(call.value) or sign.none
    text = f"{sign.wrong} {_shown(call.value)}, not {_shown(call.expected)}"
    return Text(text, style=colours.WRONG)


def _shown(value: Value) -> str:
    if isinstance(value, tuple):
        return "[" + " ".join(number(each) for each in value) + "]"
    return value if isinstance(value, str) else number(value)


# --------------------------------------------------------------------------------------- training


def _losses(lesson: Lesson, sign: Signs) -> Grid:
    names = ("After step", "Loss over RPC", "In one process", "Difference")
    grid = Grid([Column(name, right=True) for name in names])
    pairs = list(zip(lesson.losses, lesson.local_losses, strict=False))
    odd = {step for step, (one, other) in enumerate(pairs) if apart(one, other) > 0}
    shown = set(range(len(pairs)))
    if len(pairs) > FEW_LOSSES:
        first_odd = {min(odd)} if odd else set()
        shown = {*range(ENDS), *range(len(pairs) - ENDS, len(pairs)), *first_odd}
    before = -1
    for step in sorted(shown):
        if step > before + 1:
            grid.rows.append([sign.more, sign.more, sign.more, ""])
        before = step
        one, other = pairs[step]
        grid.rows.append(
            [
                str(step),
                f"{one:.6g}",
                f"{other:.6g}",
                _difference(apart(one, other)),
            ]
        )
    return grid


def _weights(weights: Sequence[Weights], sign: Signs) -> Grid:
    names = ("Parameter", "Owner", "Over RPC", "In one process", "Difference")
    grid = Grid([Column(name, right=name == "Difference") for name in names])
    for each in weights:
        grid.rows.append(
            [
                each.name,
                _worker(each.owner),
                _ends(each.remote, sign),
                _ends(each.local, sign),
                _difference(each.difference),
            ]
        )
    return grid


def _ends(numbers: Sequence[float], sign: Signs) -> str:
    """The first and last of them."""
    texts = [f"{each:.3f}" if abs(each) < 1000 else f"{each:.3g}" for each in numbers]
    return "[" + " ".join(texts if len(texts) <= 2 else (texts[0], sign.more, texts[-1])) + "]"


def _difference(value: float) -> Text:
    return Text("0") if value == 0 else Text(f"{value:.3g}", style=colours.WRONG)


# ---------------------------------------------------------------------------------------- the end


def _proof(proof: Proof, sign: Signs) -> Text:
    mark = sign.right if proof.held else sign.wrong
    style = colours.RIGHT if proof.held else colours.WRONG
    text = Text(f"{mark} {proof.claim}", style=style)
    return text.append(f" ({proof.found})", style="not bold default")


def _footer(report: RpcReport, lesson: Lesson) -> list[str]:
    """How long it took, who started it, and what a reader should know."""
    world = report.world
    times = f"{duration(lesson.seconds)} over RPC, {duration(lesson.local_seconds)} in one process"
    how = f"Started by {world.start_method}: {world.start_reason}."
    if world.engine != "local":
        how = f"Workers of a world that others started too ({world.engine})."
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return [
        f"The training took {times}. Times are {name_of(0)}'s.",
        *report.notes,
        how,
        versions,
    ]
