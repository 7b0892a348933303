"""The command line that runs one size of a series again."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.bench.old_records import SeriesSpec
from distdemo.bench.view_names import moves
from distdemo.ops.spec import OpSpec


def again(spec: SeriesSpec, size: int) -> str:
    """What shows the elements of every rank; of a call in place, which ``bench`` alone makes, that.

    Args:
        spec: the series.
        size: of one of its points, in bytes.
    """
    point = next(each for each in spec.points if each.size == size)
    op = point.specs[0]
    world = spec.world
    words = [spec.command, f"-n {world.world_size} --backend {world.backend}"]
    words += [f"--device {world.device}"] if world.device != "cpu" else []
    if op.in_place:
        words = ["bench", *words, f"-b {size} -e {size} --iters 1 --placement in", *_settings(op)]
        words += [f"--variant {op.variant}"] if op.variant == "list" else []
        words += ["--async"] if op.async_op else []
    else:
        words += [f"--shape {op.shape[0]}"] if op.shape else []
        words += [*(_settings(op) if moves(spec) else []), *_form(op)]
    return " ".join(["distdemo", *words, *_groups(point.specs)])


def _settings(op: OpSpec) -> Iterator[str]:
    """What ``bench`` and the command of the op have under the same names."""
    yield f"--dtype {op.dtype}"
    for flag, value in (
        ("--reduce-op", op.reduce_op),
        ("--root", op.root),
        ("--src", op.src),
        ("--dst", op.dst),
    ):
        if value is not None:
            yield f"{flag} {value}"
    if op.pattern not in (None, "pair"):
        yield f"--pattern {op.pattern}"


def _form(op: OpSpec) -> Iterator[str]:
    """What the op's own command has to be told: there a list is usual, here a single tensor."""
    if op.variant == "single":
        yield "--variant single"
    if op.async_op:
        yield "--async" if op.pattern is None else "--nonblocking"


def _groups(specs: tuple[OpSpec, ...]) -> Iterator[str]:
    """The groups that run at once: of neighbours, or of ranks as far apart as there are groups."""
    members = specs[0].members
    if members is None:
        return
    if len(specs) == 1:
        yield f"--group {','.join(map(str, members))}"
    else:
        yield f"--split {'' if members[1] == members[0] + 1 else '%'}{len(specs)}"
