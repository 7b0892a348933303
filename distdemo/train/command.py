"""``distdemo train``: train a small classifier on every rank, verified against one process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    ADVANCED,
    OUTPUT,
    Backend,
    Device,
    LearningRate,
    Plot,
    Seed,
    Stall,
    StartMethod,
    Timeout,
    WorldSize,
    choice,
    count,
)
from distdemo.cli.session import Session
from distdemo.cli.types import decimal, file_to_write
from distdemo.errors import UsageError
from distdemo.train.records import DATASETS, MODES, EpochDone, TrainSpec

NO_LIMIT = 7 * 24 * 3600.0  # seconds; --stall is the limit that matters
STALL = 30.0  # seconds
PRELOADED = ("torch.nn.parallel",)
DEFAULT = TrainSpec()
MODE_NAMES = ("compare", *MODES)


@command(
    record="distdemo.train.records:TrainReport",
    joins=True,
    epilog="Try: distdemo train; distdemo train --mode ddp --timeline ddp.json; distdemo train "
    "--dataset digits --plot curves.svg",
)
def train(
    session: Session,
    *,
    world_size: WorldSize = None,
    mode: Annotated[
        str, choice("MODE", MODE_NAMES, "manual, flat, ddp, or compare (all three).")
    ] = DEFAULT.mode,
    epochs: Annotated[int, count("Number of passes over the data.", most=100_000)] = DEFAULT.epochs,
    batch_size: Annotated[
        int, count("Number of samples per step, over all ranks.")
    ] = DEFAULT.batch_size,
    learning_rate: LearningRate = DEFAULT.learning_rate,
    dataset: Annotated[
        str | None,
        choice("NAME", DATASETS, "generated, digits (scikit-learn's) or mnist (in --data-dir)."),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Folder with torchvision's MNIST. Nothing is downloaded."
        ),
    ] = None,
    backend: Backend = "auto",
    momentum: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            parser=decimal(0, 1, "0.9"),
            help="Momentum of SGD.",
            rich_help_panel=ADVANCED,
        ),
    ] = DEFAULT.momentum,
    hidden: Annotated[
        int, count("Number of units of the hidden layer.", rich_help_panel=ADVANCED)
    ] = DEFAULT.hidden,
    seed: Seed = DEFAULT.seed,
    device: Device = None,
    timeout: Timeout = None,
    stall: Stall = None,
    start_method: StartMethod = "auto",
    plot: Plot = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            "--timeline",
            metavar="FILE",
            parser=file_to_write(".json"),
            help="Write a timeline of every rank for Perfetto or chrome://tracing.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> Result:
    """Train a small classifier on every rank, and prove that the training is data-parallel.

    Gradients are averaged by hand, in one flat buffer, and by DistributedDataParallel. Each is
    compared with the same batches on one process.
    """
    spec = TrainSpec(
        mode=mode,
        dataset=dataset or ("generated" if data_dir is None else "mnist"),
        data_dir=data_dir or "",
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        momentum=momentum,
        hidden=hidden,
        seed=seed or 0,
        timeline=timeline is not None,
    )
    if (spec.dataset == "mnist") != bool(spec.data_dir):
        raise UsageError(
            "--dataset mnist and --data-dir require each other.",
            "Nothing is downloaded: the folder must hold torchvision's MNIST files.",
            "Try --dataset mnist --data-dir FOLDER, or neither for generated data.",
        )
    size = session.world_size(world_size)
    if batch_size < size:
        raise UsageError(
            f"--batch-size {batch_size} is less than one sample per rank.",
            f"A batch is split evenly over {size} ranks.",
            f"Try --batch-size {32 * size}.",
        )
    world = session.world(
        size,
        backend,
        device,
        timeout or NO_LIMIT,
        start_method,
        stall=stall or STALL,
        data_bytes=spec.memory_bytes(session.ranks_here(size)) if device != "cuda" else 0,
    )
    from distdemo.view.progress import Progress

    # Counts the epochs of every mode and of the reference.
    shown = not session.quiet and session.is_first
    with Progress(epochs * (len(spec.modes) + 1), enabled=shown) as bar:
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
        from distdemo.train.report import report
        from distdemo.train.timeline import as_trace_events

        def on_message(_: int, now: EpochDone | None) -> None:
            if now is not None:
                text = f"{now.mode} {now.epoch}/{epochs}, loss {now.loss:.2g}, {now.accuracy:.0%}"
                bar.advance(now.done, 0, text)

        ended = session.start(
            world,
            target,
            (spec, task, data),
            returns=RankTrainings,
            sends=EpochDone | None,
            on_message=on_message,
            meaning=str(spec),
        )
    result = report(spec, ended, task)
    return Result(
        result,
        "distdemo.train.view",
        errors=tuple(
            Error(
                f"{proof.mode}: {proof.claim} "
                f"{'could not be compared' if proof.held is None else 'differ'}.",
                ranks=proof.ranks,
            )
            for proof in result.proofs
            if not proof.held
        ),
        plot=plot,
        files=(("--timeline", timeline, lambda: as_trace_events(result)),),
    )
