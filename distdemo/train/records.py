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
SAMPLES = 2000
TESTS = 1000
FEATURES = 16
CLASSES = 10
HIDDEN = 64
PARAMETERS = (FEATURES + 1) * HIDDEN + (HIDDEN + 1) * CLASSES
BUCKET_MIB = 0.004
"""Bucket size of DDP. Its default, 25, would hold the whole model, so nothing could overlap."""
BATCH = 64
"""Samples per step over all ranks, if they can be split evenly."""


def rank_batch(world_size: int) -> int:
    """Return the number of samples per rank and step.

    Every rank gets the same number of batches of the same size. So the mean of the ranks' mean
    gradients is the mean gradient over all samples of the step. Samples that don't fill a last
    step are left out::

        [0 1][2 3][4 5][6 7][8 9] 10   # rank 0, with batches of 2
    """
    return max(1, BATCH // world_size)


@dataclass(frozen=True, slots=True)
class TrainSpec:
    """Options of a training.

    Attributes:
        mode: One of ``MODES``, or ``compare``.
        epochs: Number of passes over the samples.
        seed: Seed of data, shuffles and initial weights.
    """

    mode: str = "compare"
    epochs: int = 5
    seed: int = 1234

    @property
    def modes(self) -> tuple[str, ...]:
        """Modes to train, in order."""
        return MODES if self.mode == "compare" else (self.mode,)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over all samples.

    Attributes:
        loss: Mean training loss over all ranks, each sample with the weights of its step.
        accuracy: Accuracy on the test samples after the epoch.
        time_s: Seconds on the slowest rank, without tests and proofs.
        checksums: Hexadecimal checksum of each rank's weights after the epoch.
        loss_difference: Largest difference of a step's loss from the training on one process,
            relative to that loss.
        weight_difference: Largest difference of a weight after the epoch, relative to the largest
            change of a weight so far.
    """

    loss: float
    accuracy: float
    time_s: float
    checksums: tuple[str, ...]
    loss_difference: float = 0.0
    weight_difference: float = 0.0

    @derived
    def replicas_identical(self) -> bool:
        """True if all replicas are the same, bit for bit."""
        return len(set(self.checksums)) == 1


@dataclass(frozen=True, slots=True)
class Run:
    """One training, in one mode.

    Attributes:
        mode: One of ``MODES``, or ``REFERENCE``.
        epochs: Epochs in order.
        steps: Number of steps in all epochs.
        collectives_per_step: Number of collectives, counted in the last step.
        bytes_per_step: Bytes that one rank passes to these collectives.
    """

    mode: str
    epochs: tuple[Epoch, ...] = ()
    steps: int = 0
    collectives_per_step: int = 0
    bytes_per_step: int = 0

    @derived
    def time_s(self) -> float:
        """Seconds of all epochs, without tests and proofs."""
        return sum(epoch.time_s for epoch in self.epochs)


@dataclass(frozen=True, slots=True)
class TrainProof:
    """A claim about one mode, and its result.

    Attributes:
        mode: Mode of the training.
        claim: ``replicas``: all are the same, bit for bit, after every epoch; ``loss`` or
            ``weights``: the loss of every step, or every weight after an epoch, equals that of one
            process.
        held: True if the claim holds.
        difference: Largest difference, see ``Epoch``, or that of the epoch in which it failed.
        epoch: Epoch in which the claim failed, counted from 1.
        ranks: Ranks that differ, if known.
    """

    mode: str
    claim: str
    held: bool
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
    reference: Run | None = None
    runs: tuple[Run, ...] = ()
    proofs: tuple[TrainProof, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if every rank returned and all proofs hold."""
        return self.world.ok and bool(self.proofs) and not self.failed

    @property
    def failed(self) -> tuple[TrainProof, ...]:
        """Proofs that failed."""
        return tuple(proof for proof in self.proofs if not proof.held)


@dataclass(frozen=True, slots=True)
class EpochDone:
    """Message that rank 0 sends after each epoch.

    Attributes:
        mode: Mode of the epoch, or ``REFERENCE``.
        epoch: Number of the epoch, counted from 1.
    """

    mode: str
    epoch: int
    loss: float
    accuracy: float
