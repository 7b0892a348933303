"""From the flags of ``train`` to what is trained, on which ranks, and which files are written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from distdemo.cli.files import check_distinct, check_named, check_plot, drawable, writable
from distdemo.cli.parse import Flags, View, choose, parse_view, parse_world, whole
from distdemo.cli.parse_engine import parse_seat, placed, ranks_here, size_of_world
from distdemo.errors import UsageError
from distdemo.launcher.joined.seat import Seat
from distdemo.launcher.limits import check_machine, free_memory
from distdemo.launcher.records import WorldSpec
from distdemo.train.limits import check_memory, check_train
from distdemo.train.records import DATASETS, MODES, PARTITIONS, TrainSpec

if TYPE_CHECKING:
    from distdemo.train.data import Data

OUTER_LIMIT = 7 * 24 * 3600.0  # seconds; a training ends by its patience, not by this
PLOTS = (".png", ".svg", ".pdf")
_DEFAULT = TrainSpec()


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """A training that can be run, as far as can be told without torch.

    Attributes:
        world: its timeout is how long the ranks may take to meet, and its patience how long they
            may go without progress; see ``training_world``.
        plot: the file for the curves, or None.
        trace: the file for what every rank did when, or None.
    """

    spec: TrainSpec
    world: WorldSpec
    plot: Path | None
    trace: Path | None
    view: View
    seat: Seat | None = None

    @property
    def training_world(self) -> WorldSpec:
        """The world to train in: it may go on as long as it moves."""
        return replace(self.world, deadline=OUTER_LIMIT)

    @property
    def settings(self) -> dict[str, float | str | None]:
        """What was asked for and is no matter of the training itself."""
        return {
            "timeout": self.world.deadline,
            "plot": None if self.plot is None else str(self.plot),
            "trace": None if self.trace is None else str(self.trace),
        }

    def check_memory(self, data: Data) -> None:
        """Refuse a model that this machine can't hold; that of a GPU is not looked at.

        Raises:
            UsageError: with a smaller one.
        """
        if self.world.device == "cpu":
            ranks = ranks_here(self.seat, self.world.world_size)
            check_memory(self.spec, data, ranks, free_memory())


def parse_train(flags: Flags) -> TrainRequest:
    """The training that these flags ask for.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    spec = _spec(flags)
    view = parse_view(flags, 1)
    plot, trace = flags["plot"], flags["trace"]
    check_named("--plot", plot, "plot.png")
    check_named("--trace", trace, "trace.json")
    check_plot(plot, PLOTS)
    check_distinct({"--plot": plot, "--trace": trace}, ("plot.png", "trace.json"))
    seat = parse_seat(flags)
    size = size_of_world(seat, flags["start"], default=4)
    seat = placed(seat, size)
    world = parse_world({**flags, "timeout": flags["stall_timeout"]}, size)
    check_machine(replace(world, world_size=ranks_here(seat, size)))
    check_train(spec, size)
    writes = seat is None or seat.site == 0  # the others hand theirs to rank 0
    return TrainRequest(
        spec,
        replace(world, stall=world.deadline),
        drawable(plot) if writes else None,
        writable("--trace", trace, "trace.json") if writes else None,
        view,
        seat,
    )


# --------------------------------------------------------------------------------- what is learned


def _spec(flags: Flags) -> TrainSpec:
    """What the flags say; ``check_train`` judges whether it makes sense."""
    mode = choose("mode", _or(flags["mode"], _DEFAULT.mode), ("compare", *MODES))
    if flags["bucket_mb"] is not None and mode not in ("ddp", "compare"):
        raise UsageError(
            f"--bucket-mb means nothing to --mode {mode}.",
            "DistributedDataParallel alone has buckets.",
            "Leave it out, or try --mode ddp.",
        )
    folder = flags["data_dir"]
    implied = "generated" if folder is None else "mnist"
    check_named("--data-dir", folder, "~/mnist")
    return TrainSpec(
        mode=mode,
        dataset=choose("dataset", _or(flags["dataset"], implied), DATASETS),
        data_dir=folder or "",
        partition=choose("partition", _or(flags["partition"], _DEFAULT.partition), PARTITIONS),
        epochs=_count("--epochs", flags["epochs"], _DEFAULT.epochs, "It counts passes."),
        batch_size=_count(
            "--batch-size", flags["batch_size"], _DEFAULT.batch_size, "It counts samples."
        ),
        learning_rate=_real("--lr", flags["learning_rate"], _DEFAULT.learning_rate),
        momentum=_real("--momentum", flags["momentum"], _DEFAULT.momentum),
        hidden=_count("--hidden", flags["hidden"], _DEFAULT.hidden, "It counts units."),
        seed=_count("--seed", flags["train_seed"], _DEFAULT.seed, "It starts random numbers."),
        bucket_mb=_real("--bucket-mb", flags["bucket_mb"], _DEFAULT.bucket_mb),
        trace=flags["trace"] is not None,
    )


def _or(text: str | None, default: str) -> str:
    return default if text is None else text


def _count(flag: str, text: str | None, default: int, why: str) -> int:
    return default if text is None else whole(flag, text, why, f"Try {flag} {default}.")


def _real(flag: str, text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"{flag} {text}: that is no number.",
            "It takes one like 0.5 or 1e-3.",
            f"Try {flag} {default:g}.",
        ) from None
