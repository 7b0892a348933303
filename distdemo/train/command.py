"""``distdemo train``: a small classifier trained on every rank, and the proof that it is one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    ADVANCED,
    OUTPUT,
    Backend,
    Device,
    Plot,
    Stall,
    StartMethod,
    Timeout,
    WorldSize,
)
from distdemo.cli.session import Session
from distdemo.cli.types import file_to_write, offer, one_of, whole
from distdemo.errors import UsageError
from distdemo.train.records import DATASETS, MODES, PARTITIONS, Progress, TrainSpec

NO_LIMIT = 7 * 24 * 3600.0  # seconds; a training ends by --stall, not by this
STALL = 30.0  # seconds
SMALLEST_RATE = 1e-6  # weights would move by less than their rounding can tell
LARGEST_SEED = 2**62  # torch's generators take 64 bits with a sign; the epoch is added to it
PRELOADED = ("torch.nn.parallel", "torch.utils.data.distributed")

DEFAULT = TrainSpec()
MODE_NAMES = ("compare", *MODES)


@command(
    record="distdemo.train.records:TrainReport",
    joins=True,
    epilog="Try: distdemo train; distdemo train --mode ddp --timeline ddp.json; distdemo train "
    "--dataset digits --plot curves.svg",
)
def train(  # noqa: PLR0913 - each is one option
    session: Session,
    *,
    world_size: WorldSize = None,
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="MODE",
            parser=one_of(MODE_NAMES),
            autocompletion=offer(MODE_NAMES),
            help="manual (an all_reduce a parameter), flat (one for all), ddp, or compare: all.",
        ),
    ] = DEFAULT.mode,
    epochs: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole(1, "It is the number of passes over the data.", 100_000),
            help="Passes over the data.",
        ),
    ] = DEFAULT.epochs,
    batch_size: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole(1, "It is the number of samples."),
            help="Samples of a step, on all ranks together.",
        ),
    ] = DEFAULT.batch_size,
    learning_rate: Annotated[
        float, typer.Option("--lr", "--learning-rate", metavar="RATE", help="Learning rate of SGD.")
    ] = DEFAULT.learning_rate,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            metavar="NAME",
            parser=one_of(DATASETS),
            autocompletion=offer(DATASETS),
            help="generated, digits (scikit-learn's) or mnist (torchvision's, with --data-dir).",
            show_default="generated",
        ),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Where torchvision keeps MNIST: no download."),
    ] = None,
    backend: Backend = "auto",
    momentum: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Momentum of SGD.", rich_help_panel=ADVANCED),
    ] = DEFAULT.momentum,
    hidden: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole(1, "It is the number of units."),
            help="Units of the hidden layer.",
            rich_help_panel=ADVANCED,
        ),
    ] = DEFAULT.hidden,
    bucket_mib: Annotated[
        float,
        typer.Option(
            metavar="MIB",
            help="DDP's bucket_cap_mb. DDP's own default, 25, holds this whole model.",
            rich_help_panel=ADVANCED,
        ),
    ] = DEFAULT.bucket_mib,
    partition: Annotated[
        str,
        typer.Option(
            "--partition",
            metavar="WAY",
            parser=one_of(PARTITIONS),
            autocompletion=offer(PARTITIONS),
            help="Who gets which samples: shuffle (cut in parts) or sampler (DistributedSampler).",
            rich_help_panel=ADVANCED,
        ),
    ] = DEFAULT.partition,
    seed: Annotated[
        int,
        typer.Option(
            metavar="NUMBER",
            parser=whole(0, "It is the seed of the random numbers.", LARGEST_SEED),
            help="Seed of the data, the shuffles and the first weights.",
            rich_help_panel=ADVANCED,
        ),
    ] = DEFAULT.seed,
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
            help="Write what every rank did when, for Perfetto or chrome://tracing.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> Result:
    """Train a small classifier on every rank, and prove that it is data-parallel.

    Gradients are averaged by hand, in one flat buffer, and by DistributedDataParallel. Each is
    compared with the same batches on one process.
    """
    spec = TrainSpec(
        mode=mode,
        dataset=dataset or ("generated" if data_dir is None else "mnist"),
        data_dir=data_dir or "",
        partition=partition,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        momentum=momentum,
        hidden=hidden,
        seed=seed,
        bucket_mib=bucket_mib,
        timeline=timeline is not None,
    )
    size = session.world_size(world_size)
    _check(spec, size)
    memory = spec.memory_bytes(session.ranks_here(size)) if device != "cuda" else 0
    world = session.world(
        size,
        backend,
        device,
        timeout or NO_LIMIT,
        start_method,
        stall=stall or STALL,
        data_bytes=memory,
    )
    shown = not session.quiet and session.is_first
    from distdemo.view.progress import Progress as Bar

    # It counts the epochs of every mode and of the reference.
    with Bar(epochs * (len(spec.modes) + 1), enabled=shown) as bar:
        session.prepare(world)
        if world.device == "cpu":  # beside CUDA, ranks could no longer be forked
            from distdemo.launcher.torch_import import load_compiler

            load_compiler(PRELOADED)
        from distdemo.train.data import read_data, task_of
        from distdemo.train.loop import train as target
        from distdemo.train.report import report

        data = read_data(spec)
        task = task_of(spec, data, size)
        last: list[Progress] = []

        def hear(_: int, told: Progress | None) -> None:
            last[:] = [told] if told is not None else last
            for now in last:
                text = f"{now.mode} {now.epoch}/{epochs}, loss {now.loss:.2g}, {now.accuracy:.0%}"
                bar.advance(now.done, 0, text)

        ended = session.start(world, target, (spec, task, data), hear=hear, meaning=str(spec))
    result = report(spec, ended, task)

    from distdemo.train import plot as files

    failed = [proof for proof in result.proofs if not proof.held]
    return Result(
        result,
        "distdemo.train.view",
        errors=tuple(
            Error(
                f"{proof.mode}: {proof.claim} "
                f"{'could not be compared' if proof.held is None else 'differ'}.",
                ranks=proof.ranks,
            )
            for proof in failed
        ),
        files=(
            ("--plot", plot, lambda: files.plot(result, plot or Path())),
            ("--timeline", timeline, lambda: files.timeline(result)),
        ),
    )


def _check(spec: TrainSpec, world_size: int) -> None:
    """Refuse what can't be trained.

    Raises:
        UsageError: with what to try instead.
    """
    for flag, value, least, below, example in (
        ("--lr", spec.learning_rate, SMALLEST_RATE, math.inf, 0.1),
        ("--momentum", spec.momentum, 0, 1, 0.9),
        ("--bucket-mib", spec.bucket_mib, 1e-6, 1e6, 25),
    ):
        if not least <= value < below:
            raise UsageError(
                f"{flag} {value:g} can't be used.",
                f"It has to be at least {least:g}, and below {below:g}.",
                f"Try {flag} {example}.",
            )
    if (spec.dataset == "mnist") != bool(spec.data_dir):
        raise UsageError(
            "--dataset mnist and --data-dir go together.",
            "Nothing is downloaded: the folder has MNIST as torchvision keeps it.",
            "Try --dataset mnist --data-dir FOLDER; or neither, for generated data.",
        )
    if spec.batch_size < world_size:
        raise UsageError(
            f"--batch-size {spec.batch_size} is less than one sample a rank.",
            f"A batch is cut into equal parts for {world_size} ranks.",
            f"Try --batch-size {32 * world_size}.",
        )
