"""The options of ``distdemo bench``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from distdemo import backends, ops, schedules
from distdemo.cli.options import (
    ADVANCED,
    Destination,
    DType,
    Group,
    Pattern,
    Plot,
    ReduceOp,
    Root,
    Sender,
    SizeList,
    SplitWorld,
    WorldOptions,
    count,
    stall_option,
    timeout_option,
    variant_option,
    world_size_option,
)
from distdemo.cli.types import BadValue, offer, parse_bytes, parse_seconds, parse_share
from distdemo.measure.records import PRECISION, Answer
from distdemo.view.format import listing

DEADLINE_S = 7 * 24 * 3600.0  # default of --timeout: --stall ends worlds that hang
STALL_S = 30.0  # default of --stall
MOST_LAUNCHES = 1000
MOST_ITERS = 100_000  # per size, timed or not: no median needs more
BUDGET_S = 10.0  # per series, default of --budget
EVERY = "all"
NAMES = dict.fromkeys(algorithm.name for algorithm in schedules.REGISTRY)
FAILING = (Answer.SLOW.value, Answer.DISTURBED.value, Answer.VARIES.value)


class Answers(tuple[Answer, ...]):
    """Answers on which to fail, such as ``slow,disturbed``."""

    __slots__ = ()


def parse_answers(value: Any) -> Answers:
    """Parse answers on which to fail."""
    if not isinstance(value, str):
        return Answers(value)
    words = [word.strip().lower() for word in value.split(",")]
    for word in words:
        if word not in FAILING:
            why = f"Choices: {', '.join(FAILING)}."
            raise BadValue(value, f"there is no answer {word!r}.", why, "slow,disturbed")
    return Answers(map(Answer, dict.fromkeys(words)))


def _bytes(flag: str, letter: str, text: str) -> Any:
    return typer.Option(flag, letter, metavar="BYTES", parser=parse_bytes, help=text)


def _count(flag: str, what: str, least: int = 1, most: int = MOST_ITERS) -> Any:
    return count(what, least, most, flag, rich_help_panel=ADVANCED)


@dataclass(frozen=True, kw_only=True)
class BenchOptions(WorldOptions):
    """Options of ``distdemo bench``."""

    world_size: Annotated[int | None, world_size_option("2")] = None
    timeout: Annotated[float | None, timeout_option("none")] = None
    operations: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OP",
            help="Operations to measure, or all. [default: all-reduce]",
            show_default=False,
            autocompletion=offer((*(op.command for op in ops.REGISTRY.values()), EVERY)),
        ),
    ] = None
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            metavar="NAME,...",
            help="One or more backends.",
            autocompletion=offer(("auto", *backends.REGISTRY)),
        ),
    ] = "auto"
    min_bytes: Annotated[int | None, _bytes("--min-bytes", "-b", "Smallest size. [default: 8]")] = (
        None
    )
    max_bytes: Annotated[
        int | None, _bytes("--max-bytes", "-e", "Largest size. [default: 64M]")
    ] = None
    step_factor: Annotated[
        float,
        typer.Option("--step-factor", "-f", metavar="NUMBER", help="Factor between sizes."),
    ] = 4.0
    sizes: SizeList = None
    dtype: DType = "float32"
    reduce_op: ReduceOp = "sum"
    root: Root = 0
    async_op: Annotated[
        bool,
        typer.Option("--async", "--nonblocking", help="Time non-blocking calls and their wait."),
    ] = False
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--algorithm",
            "-a",
            metavar="NAME,...",
            autocompletion=offer((EVERY, *NAMES)),
            help="Also run these algorithms with isend and irecv, or all: ring,tree.",
        ),
    ] = None
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            parser=parse_seconds,
            help="Time for all operations together. "
            f"[default: {BUDGET_S:g} per operation, backend and placement]",
        ),
    ] = None
    precision: Annotated[
        float,
        typer.Option(
            "--precision",
            metavar="PERCENT",
            parser=parse_share,
            show_default=False,
            help="Target half-width of the median's confidence interval. [default: 5%]",
        ),
    ] = PRECISION
    fail_on: Annotated[
        Answers | None,
        typer.Option(
            metavar="ANSWER,...",
            parser=parse_answers,
            help=f"Exit with 1 if any size is {listing(FAILING, 'or')}.",
        ),
    ] = None
    plot: Plot = None
    group: Group = None
    split: SplitWorld = None
    src: Sender = None
    dst: Destination = None
    pattern: Pattern = "pair"
    variant: Annotated[str | None, variant_option("single, where torch has it")] = None
    iters: Annotated[
        int | None,
        _count("--iters", "Number of timed iterations per size. [default: until steady]"),
    ] = None
    warmup: Annotated[
        int | None, _count("--warmup", "Number of untimed iterations per size and launch.", 0)
    ] = None
    launches: Annotated[
        int | None,
        _count(
            "--launches",
            "Number of fresh worlds to time. [default: until steady]",
            most=MOST_LAUNCHES,
        ),
    ] = None
    check_every: Annotated[
        int,
        _count(
            "--check-every",
            "Number of timed iterations between verifications; 0: one, at the start.",
            0,
        ),
    ] = 0
    no_limits: Annotated[
        bool,
        typer.Option(
            "--no-limits", help="Don't measure the machine's limits.", rich_help_panel=ADVANCED
        ),
    ] = False
    stall: Annotated[float | None, stall_option(f"{STALL_S:g}")] = None
