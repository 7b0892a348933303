"""``distdemo train``: train a small classifier on every rank, verified against one process."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import typer

from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    ADVANCED,
    OUTPUT,
    Plot,
    Seed,
    Stall,
    WorldOptions,
    choice,
    count,
)
from distdemo.cli.session import Session
from distdemo.cli.types import decimal, file_to_write
from distdemo.errors import UsageError
from distdemo.train.records import DATASETS, MODES, TrainReport, TrainSpec

NO_LIMIT_S = 7 * 24 * 3600.0  # --stall is the limit that matters
STALL_S = 30.0
PRELOADED = ("torch.nn.parallel",)
DEFAULT = TrainSpec()


@dataclass(frozen=True, kw_only=True)
class TrainOptions(WorldOptions):
    """Options of ``distdemo train``."""

    mode: Annotated[
        str, choice("MODE", ("compare", *MODES), "manual, flat, ddp, or compare (all three).")
    ] = DEFAULT.mode
    epochs: Annotated[int, count("Number of passes over the data.", most=100_000)] = DEFAULT.epochs
    batch_size: Annotated[int, count("Number of samples per step, over all ranks.")] = (
        DEFAULT.batch_size
    )
    learning_rate: Annotated[
        float,
        typer.Option(
            "--lr",
            "--learning-rate",
            metavar="RATE",
            parser=decimal(1e-6, math.inf, "0.1"),
            help="Learning rate of SGD.",
        ),
    ] = DEFAULT.learning_rate
    dataset: Annotated[
        str | None,
        choice("NAME", DATASETS, "generated, digits (scikit-learn's) or mnist (in --data-dir)."),
    ] = None
    data_dir: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Folder with torchvision's MNIST. Nothing is downloaded."
        ),
    ] = None
    momentum: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            parser=decimal(0, 1, "0.9"),
            help="Momentum of SGD.",
            rich_help_panel=ADVANCED,
        ),
    ] = DEFAULT.momentum
    hidden: Annotated[
        int, count("Number of units of the hidden layer.", rich_help_panel=ADVANCED)
    ] = DEFAULT.hidden
    seed: Seed = DEFAULT.seed
    stall: Stall = None
    plot: Plot = None
    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=file_to_write(".json"),
            help="Write a timeline of every rank for Perfetto or chrome://tracing.",
            rich_help_panel=OUTPUT,
        ),
    ] = None

    def spec(self) -> TrainSpec:
        """Return the training.

        Raises:
            UsageError: The data set and its folder don't fit together.
        """
        dataset = self.dataset or ("generated" if self.data_dir is None else "mnist")
        if (dataset == "mnist") != bool(self.data_dir):
            raise UsageError(
                "--dataset mnist and --data-dir require each other.",
                "Nothing is downloaded: the folder must hold torchvision's MNIST files.",
                "Try --dataset mnist --data-dir FOLDER, or neither for generated data.",
            )
        given = {each.name: getattr(self, each.name) for each in fields(TrainSpec)}
        return TrainSpec(**given | {"dataset": dataset, "timeline": self.timeline is not None})


@command(
    record="distdemo.train.records:TrainReport",
    joins=True,
    defaults={"timeout": "none", "stall": f"{STALL_S:g}", "dataset": "generated"},
    epilog="Try: distdemo train; distdemo train --mode ddp --timeline ddp.json; distdemo train "
    "--dataset digits --plot curves.svg",
)
def train(session: Session, options: TrainOptions) -> Result:
    """Train a small classifier on every rank, and prove that the training is data-parallel.

    Gradients are averaged by hand, in one flat buffer, and by DistributedDataParallel. Each is
    compared with the same batches on one process.
    """
    spec, size = options.spec(), session.world_size(options.world_size)
    if spec.batch_size < size:
        raise UsageError(
            f"--batch-size {spec.batch_size} is less than one sample per rank.",
            f"A batch is split evenly over {size} ranks.",
            f"Try --batch-size {32 * size}.",
        )
    report = _run(spec, size, options, session)
    from distdemo.train import timeline, view

    errors = tuple(
        Error(
            f"{proof.mode}: {proof.claim} "
            f"{'could not be compared' if proof.held is None else 'differ'}.",
            ranks=proof.ranks,
        )
        for proof in report.proofs
        if not proof.held
    )
    files = (
        ("--plot", options.plot, lambda: view.plot(report, options.plot)),
        ("--timeline", options.timeline, lambda: timeline.as_trace_events(report)),
    )
    return Result(report, view.train_view, errors=errors, files=files)


def _run(spec: TrainSpec, size: int, options: TrainOptions, session: Session) -> TrainReport:
    """Read the data, train on every rank, and build the report."""
    from distdemo.view.progress import Progress

    world = session.world(
        size,
        replace(options, timeout=options.timeout or NO_LIMIT_S),
        stall=options.stall or STALL_S,
        data_bytes=spec.memory_bytes(session.ranks_here(size)) if options.device != "cuda" else 0,
    )
    shown = not session.quiet and session.is_first
    # Counts the epochs of every mode and of the reference.
    with Progress(spec.epochs * (len(spec.modes) + 1), enabled=shown) as bar:
        session.prepare(world)
        from distdemo.train.data import read_data, task_of

        data = read_data(spec)
        task = task_of(spec, data, size)
        if world.device == "cpu":  # with CUDA, ranks could no longer be forked
            from distdemo.launcher.torch_import import load_compiler

            load_compiler(PRELOADED)
        from distdemo.train.loop import RankTrainings
        from distdemo.train.loop import train as target
        from distdemo.train.records import EpochDone
        from distdemo.train.report import make_report

        def on_message(_: int, now: EpochDone | None) -> None:
            if now is not None:
                at = f"{now.mode} {now.epoch}/{spec.epochs}"
                bar.advance(now.done, 0, f"{at}, loss {now.loss:.2g}, {now.accuracy:.0%}")

        ended = session.start(
            world,
            target,
            (spec, task, data),
            returns=RankTrainings,
            sends=EpochDone | None,
            on_message=on_message,
            meaning=str(spec),
        )
    return make_report(spec, ended, task)
