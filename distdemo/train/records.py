"""Options and results of ``train``: frozen records; no torch, no rich, no typer.

Losses are mean cross entropies per sample, in nats; accuracies are fractions from 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from distdemo.encoding import derived
from distdemo.launcher.records import WorldReport

MODES = ("manual", "flat", "ddp")
"""Ways to average gradients; ``compare`` runs all of them."""
REFERENCE = "single"
"""Name of the training on one process."""
DATASETS = {"generated": (16, 10), "digits": (64, 10), "mnist": (784, 10)}
"""Numbers per sample and number of classes, by data set."""
COMPUTE = "compute"
"""Timeline track of a rank's computation."""

TOLERANCE = 1e-6
"""Largest allowed difference: of a loss, relative to it; of a weight, to the largest change."""
CHUNK = 1024
"""Number of test samples that a rank evaluates at once."""


@dataclass(frozen=True, slots=True)
class TrainSpec:
    """Options of a training.

    Attributes:
        mode: One of ``MODES``, or ``compare``.
        dataset: One of ``DATASETS``.
        data_dir: Folder with torchvision's MNIST files; None for other data sets.
        epochs: Number of passes over the samples.
        batch_size: Samples per step over all ranks, split evenly.
        learning_rate: Learning rate of SGD.
        momentum: Momentum of SGD.
        hidden: Number of units in the hidden layer.
        seed: Seed of data, shuffles and initial weights.
        timeline: True if spans are recorded for a timeline.
    """

    mode: str = "compare"
    dataset: str = "generated"
    data_dir: str | None = None
    epochs: int = 5
    batch_size: int = 64
    learning_rate: float = 0.1
    momentum: float = 0.9
    hidden: int = 64
    seed: int = 1234
    timeline: bool = field(default=False, metadata={"json": False})

    @property
    def modes(self) -> tuple[str, ...]:
        """Modes to train, in order."""
        return MODES if self.mode == "compare" else (self.mode,)

    @property
    def parameters(self) -> int:
        """Number of the model's parameters."""
        features, classes = DATASETS[self.dataset]
        return (features + 1) * self.hidden + (self.hidden + 1) * classes

    def memory_bytes(self, ranks: int) -> int:
        """Return the memory that the models need on a machine with this many ranks and rank 0.

        Per mode: weights, gradients, momentum and buckets. On rank 0: the reference, and copies to
        compare. Then the activations of the hidden units for each sample of a step.
        """
        copies = ranks * 4 * len(self.modes) + 6
        samples = max(self.batch_size, ranks * CHUNK)
        return 8 * (copies * self.parameters + 3 * self.hidden * samples)


@dataclass(frozen=True, slots=True)
class TrainTask:
    """Size of the task and the split of an epoch: the same for every rank.

    Every rank gets the same number of batches of the same size. So the mean of the ranks' mean
    gradients is the mean gradient over all samples of the step. With 33 samples, 3 ranks and a
    batch size of 7 there are 5 steps of 2 samples per rank, and 3 samples are left out::

        [0 1][2 3][4 5][6 7][8 9] 10   # rank 0 (of its part of 11)

    Attributes:
        data: Display name of the data set.
        samples: Number of training samples.
        tests: Number of test samples.
        features: Numbers per sample.
        parameters: Number of parameters of the model.
        rank_batch: Samples per rank and step.
        steps_per_epoch: Steps per epoch of each rank.
    """

    data: str
    samples: int
    tests: int
    features: int
    classes: int
    parameters: int
    rank_batch: int
    steps_per_epoch: int


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
        communication_s: Seconds with a collective in progress, as a mean over the ranks.
        overlapped_s: Part of `communication_s` during which the backward pass was computing.
        comparison: Comparison with the reference.
    """

    mode: str
    epochs: tuple[Epoch, ...] = ()
    steps: int = 0
    collectives_per_step: int = 0
    bytes_per_step: int = 0
    communication_s: float = 0.0
    overlapped_s: float = 0.0
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


@dataclass(slots=True)
class Span:
    """A timed activity of a rank.

    Attributes:
        step: Step, counted from 0 over all epochs.
        track: ``COMPUTE`` or a communication track; tracks may overlap.
        name: Name of the activity, such as ``backward`` or ``all_reduce bucket 0``.
        start_s: Start on the host's monotonic clock.
        size_bytes: Bytes passed to a collective; 0 for computation.
    """

    rank: int
    mode: str
    step: int
    track: str
    name: str
    start_s: float
    end_s: float
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TrainReport:
    """Result of a training.

    Attributes:
        reference: Training on the same batches in one process; None if the world failed.
        runs: One run per mode, in order; empty if the world failed.
        proofs: Claims of all modes, with their results.
        spans: Timed activities of all ranks; empty unless a timeline was requested.
    """

    spec: TrainSpec
    world: WorldReport
    task: TrainTask
    reference: Run | None = None
    runs: tuple[Run, ...] = ()
    proofs: tuple[TrainProof, ...] = ()
    spans: tuple[Span, ...] = field(default=(), metadata={"json": False})
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
