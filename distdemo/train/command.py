"""``distdemo train``: train a small classifier on every rank, verified against one process."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields, replace
from typing import Annotated

from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    ADVANCED,
    WorldOptions,
    choice,
    count,
    stall_option,
    timeout_option,
)
from distdemo.cli.session import Session
from distdemo.errors import UsageError
from distdemo.train.records import MODES, SAMPLES, EpochDone, TrainSpec

NO_LIMIT_S = 7 * 24 * 3600.0  # --stall is the limit that matters
STALL_S = 30.0
PRELOADED = ("torch.nn.parallel",)
DEFAULT = TrainSpec()


@dataclass(frozen=True, kw_only=True)
class TrainOptions(WorldOptions):
    """Options of ``distdemo train``."""

    timeout: Annotated[float | None, timeout_option("none")] = None
    mode: Annotated[
        str, choice("MODE", ("compare", *MODES), "manual, flat, ddp, or compare (all three).")
    ] = DEFAULT.mode
    epochs: Annotated[int, count("Number of passes over the data.", most=100_000)] = DEFAULT.epochs
    seed: Annotated[
        int,
        count(
            "Seed of the random numbers.",
            0,
            2**31 - 2,
            metavar="NUMBER",
            rich_help_panel=ADVANCED,
        ),
    ] = DEFAULT.seed
    stall: Annotated[float | None, stall_option(f"{STALL_S:g}")] = None


@command(
    record="distdemo.train.records:TrainReport",
    joins=True,
    epilog="Try: distdemo train; distdemo train --mode ddp -n 2; distdemo train --epochs 30",
)
def train(session: Session, options: TrainOptions) -> Result:
    """Train a model on every rank, and prove it data-parallel.

    Gradients are averaged by hand, in one flat buffer, and by DistributedDataParallel. Each is
    compared with the same batches on one process.
    """
    spec = TrainSpec(**{option.name: getattr(options, option.name) for option in fields(TrainSpec)})
    size = session.world_size(options.world_size)
    if size > SAMPLES:
        why = f"There are {SAMPLES:,} samples, and every rank needs one."
        raise UsageError(f"--world-size {size} is too large.", why, "Try --world-size 64.")
    from distdemo.launcher.torch_import import load_compiler
    from distdemo.view.progress import Progress

    limits = replace(options, timeout=options.timeout or NO_LIMIT_S)
    world = session.world(size, limits, stall=options.stall or STALL_S)
    # Counts the epochs of every mode and of the reference.
    total = spec.epochs * (len(spec.modes) + 1)
    with Progress(total, enabled=session.shows_progress) as bar:
        session.prepare(world)
        if world.device == "cpu":  # with CUDA, ranks could no longer be forked
            load_compiler(PRELOADED)
        from distdemo.train import loop

        done = itertools.count(1)

        def on_message(_: int, now: EpochDone) -> None:
            at = f"{now.mode} {now.epoch}/{spec.epochs}"
            bar.advance(next(done), 0, f"{at}, loss {now.loss:.2g}, {now.accuracy:.0%}")

        ended = session.start(world, loop.train, (spec,), on_message=on_message)
    from distdemo.train import proofs, view

    report = proofs.make_report(spec, ended)
    errors = tuple(
        Error(f"{proof.mode}: {proof.claim} differ.", ranks=proof.ranks) for proof in report.failed
    )
    return Result(report, view.train_view, errors=errors)
