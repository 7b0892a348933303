"""Options and results of ``train``: frozen records; no torch, no rich, no typer.

Losses are mean cross entropies per sample, in nats; accuracies are fractions from 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from distdemo.encoding import derived
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldReport

MODES = ("manual", "flat", "ddp")
"""Ways to average gradients; ``compare`` runs all of them."""
REFERENCE = "single"
"""Name of the training on one process."""
SAMPLES = 2000
TESTS = 1000
FEATURES = 16
CLASSES = 10
HIDDEN = 64
PARAMETERS = (FEATURES + 1) * HIDDEN + (HIDDEN + 1) * CLASSES


@dataclass(frozen=True, slots=True)
class TrainSpec:
    """Options of a training.

    Attributes:
        mode: One of ``MODES``, or ``compare``.
        epochs: Number of passes over the samples.
        batch_size: Samples per step over all ranks, split evenly.
        learning_rate: Learning rate of SGD.
        seed: Seed of data, shuffles and initial weights.
    """

    mode: str = "compare"
    epochs: int = 5
    batch_size: int = 64
    learning_rate: float = 0.1
    seed: int = 1234

    @property
    def modes(self) -> tuple[str, ...]:
        """Modes to train, in order."""
        return MODES if self.mode == "compare" else (self.mode,)


@dataclass(frozen=True, slots=True)
class TrainTask:
    """Size of the task and the split of an epoch: the same for every rank.

    Every rank gets the same number of batches of the same size. So the mean of the ranks' mean
    gradients is the mean gradient over all samples of the step. With 33 samples, 3 ranks and a
    batch size of 7 there are 5 steps of 2 samples per rank, and 3 samples are left out::

        [0 1][2 3][4 5][6 7][8 9] 10   # rank 0 (of its part of 11)

    Attributes:
        samples: Number of training samples.
        tests: Number of test samples.
        features: Numbers per sample.
        parameters: Number of parameters of the model.
        rank_batch: Samples per rank and step.
        steps_per_epoch: Steps per epoch of each rank.
    """

    samples: int
    tests: int
    features: int
    classes: int
    parameters: int
    rank_batch: int
    steps_per_epoch: int

    @classmethod
    def split(cls, batch_size: int, world_size: int) -> TrainTask:
        """Return the task, with its samples split over the ranks.

        Raises:
            UsageError: A step has less than one sample per rank, or more than there are.
        """
        part = SAMPLES // world_size
        rank_batch = batch_size // world_size
        if not rank_batch:
            raise UsageError(
                f"--batch-size {batch_size} is less than one sample per rank.",
                f"A batch is split evenly over {world_size} ranks.",
                f"Try --batch-size {min(32, part) * world_size}.",
            )
        if rank_batch > part:
            raise UsageError(
                f"--batch-size {batch_size} is larger than the data set.",
                f"There are {SAMPLES:,} training samples, {part:,} per rank.",
                f"Try --batch-size {part * world_size}.",
            )
        steps = part // rank_batch
        return cls(SAMPLES, TESTS, FEATURES, CLASSES, PARAMETERS, rank_batch, steps)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over all samples.

    Attributes:
        loss: Mean training loss over all ranks, each sample with the weights of its step.
        accuracy: Accuracy on the test samples after the epoch.
        time_s: Seconds on the slowest rank, without tests and proofs.
        checksums: Hexadecimal checksum of each rank's weights after the epoch.
    """

    loss: float
    accuracy: float
    time_s: float
    checksums: tuple[str, ...]

    @derived
    def replicas_identical(self) -> bool:
        """True if all replicas are the same, bit for bit."""
        return len(set(self.checksums)) == 1


@dataclass(frozen=True, slots=True)
class Deviation:
    """Difference between a training and the same batches on one process.

    Attributes:
        epochs: Number of epochs compared, from the first one on.
        loss_difference: Largest difference of a step's loss, relative to that loss.
        weight_difference: Largest difference of a weight after an epoch, relative to the largest
            change of a weight up to that epoch.
        stopped: Reason why later epochs weren't compared: ``diverged`` (the loss on one process is
            too large for a training), ``rounding`` (rounding errors have grown, step by step,
            beyond the tolerance), ``wrong`` (the last epoch compared was wrong), or empty.
    """

    epochs: int = 0
    loss_difference: float = 0.0
    weight_difference: float = 0.0
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One training, in one mode.

    Attributes:
        mode: One of ``MODES``, or ``REFERENCE``.
        epochs: Epochs in order.
        steps: Number of steps in all epochs.
        collectives_per_step: Number of collectives, counted in the last step.
        bytes_per_step: Bytes that one rank passes to these collectives.
        comparison: Comparison with the reference.
    """

    mode: str
    epochs: tuple[Epoch, ...] = ()
    steps: int = 0
    collectives_per_step: int = 0
    bytes_per_step: int = 0
    comparison: Deviation = Deviation()

    @derived
    def time_s(self) -> float:
        """Seconds of all epochs, without tests and proofs."""
        return sum(epoch.time_s for epoch in self.epochs)


CLAIMS = ("replicas", "loss", "weights")


@dataclass(frozen=True, slots=True)
class TrainProof:
    """A claim about one mode, and its result.

    Attributes:
        mode: Mode of the training.
        claim: One of ``CLAIMS``: all replicas are the same, bit for bit, after every epoch; the
            loss of every step, or every weight after an epoch, equals that of one process.
        held: True if the claim holds, None if it could not be checked.
        difference: Largest difference, see ``Deviation``, or None.
        epoch: Epoch in which the claim failed, counted from 1.
        ranks: Ranks that differ, if known.
    """

    mode: str
    claim: str
    held: bool | None
    difference: float | None = None
    epoch: int | None = None
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainReport:
    """Result of a training.

    Attributes:
        reference: Training on the same batches in one process; None if the world failed.
        runs: One run per mode, in order; empty if the world failed.
        proofs: Claims of all modes, with their results.
    """

    spec: TrainSpec
    world: WorldReport
    task: TrainTask
    reference: Run | None = None
    runs: tuple[Run, ...] = ()
    proofs: tuple[TrainProof, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if every rank returned and all proofs hold."""
        return self.world.ok and bool(self.proofs) and all(proof.held for proof in self.proofs)

    @property
    def trainings(self) -> tuple[Run, ...]:
        """The reference, and the training of each mode."""
        return self.runs if self.reference is None else (self.reference, *self.runs)

    @property
    def failed(self) -> tuple[TrainProof, ...]:
        """Proofs that failed."""
        return tuple(proof for proof in self.proofs if proof.held is False)

    @property
    def undecided(self) -> tuple[TrainProof, ...]:
        """Proofs that could not be made."""
        return tuple(proof for proof in self.proofs if proof.held is None)


@dataclass(frozen=True, slots=True)
class EpochDone:
    """Message that rank 0 sends after each epoch.

    Attributes:
        mode: Mode of the epoch, or ``REFERENCE``.
        epoch: Number of the epoch, counted from 1.
        done: Number of completed epochs of all modes and the reference.
    """

    mode: str
    epoch: int
    done: int
    loss: float
    accuracy: float
