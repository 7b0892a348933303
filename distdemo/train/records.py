"""What ``train`` is asked for, and what came of it: frozen records; no torch, no rich, no typer.

Losses are means of the cross entropy over samples, in nats; accuracies are shares, 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from distdemo.encoding import derived
from distdemo.launcher.records import WorldReport

MODES = ("manual", "flat", "ddp")
"""The ways to average gradients; ``compare`` runs all of them."""
REFERENCE = "single"
"""The name of the training on one process."""
DATASETS = {"generated": (16, 10), "digits": (64, 10), "mnist": (784, 10)}
"""The numbers of a sample, and the classes."""
COMPUTE = "compute"
"""The track of what a rank computes."""

TOLERANCE = 1e-6
"""Of a loss: as a share of it. Of a weight: as a share of how far the weights have moved."""
CHUNK = 1024
"""Tests that a rank computes at once."""


@dataclass(frozen=True, slots=True)
class TrainSpec:
    """A training to run.

    Attributes:
        mode: of ``MODES``, or ``compare``.
        dataset: of ``DATASETS``.
        data_dir: the folder of MNIST, as torchvision keeps it.
        epochs: how often all samples are seen.
        batch_size: samples of a step on all ranks together; each rank takes an equal share.
        learning_rate: of SGD.
        momentum: of SGD.
        hidden: units of the hidden layer.
        seed: of data, shuffles and first weights.
        timeline: keep what every rank did when.
    """

    mode: str = "compare"
    dataset: str = "generated"
    data_dir: str = ""
    epochs: int = 5
    batch_size: int = 64
    learning_rate: float = 0.1
    momentum: float = 0.9
    hidden: int = 64
    seed: int = 1234
    timeline: bool = field(default=False, metadata={"json": False})

    @property
    def modes(self) -> tuple[str, ...]:
        """Those that are trained, in order."""
        return MODES if self.mode == "compare" else (self.mode,)

    @property
    def parameters(self) -> int:
        """Number of the model's parameters."""
        features, classes = DATASETS[self.dataset]
        return (features + 1) * self.hidden + (self.hidden + 1) * classes

    def memory_bytes(self, ranks: int) -> int:
        """What these ranks of a machine need for their models, rank 0 among them.

        In each mode the weights, gradients, momentum and what they travel in; on rank 0 the
        reference and copies to compare; and what a hidden unit holds for each sample of a step.
        """
        copies = ranks * 4 * len(self.modes) + 6
        samples = max(self.batch_size, ranks * CHUNK)
        return 8 * (copies * self.parameters + 3 * self.hidden * samples)


@dataclass(frozen=True, slots=True)
class TrainTask:
    """What is learned, and how an epoch of it is cut: the same for every rank.

    Every rank gets the same number of batches of the same size. So the mean over the ranks of
    each rank's mean gradient is the mean gradient over all samples of the step. With 33 samples,
    3 ranks and a batch size of 7 there are 5 steps of 2 samples a rank, and 3 are left out::

        [0 1][2 3][4 5][6 7][8 9] 10   # rank 0 (of its part of 11)

    Attributes:
        data: what it is, for people.
        samples: that are trained on.
        tests: samples that accuracy is measured on.
        features: numbers of a sample.
        parameters: numbers of the model.
        rank_batch: samples of a rank in a step.
        steps_per_epoch: of each rank.
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
        loss: over the samples of all ranks, each at the weights that it was seen with.
        accuracy: on the tests, after it.
        time_s: of the slowest rank, tests and proofs left out.
        checksums: of every rank's weights after it, hexadecimal.
    """

    loss: float
    accuracy: float
    time_s: float
    checksums: tuple[str, ...]

    @derived
    def replicas_identical(self) -> bool:
        """Whether all replicas are the same, bit for bit."""
        return len(set(self.checksums)) == 1


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far a training is from the same batches on one process.

    Attributes:
        epochs: number of first epochs in which it was compared.
        loss_difference: the largest of a step's loss, as a share of that.
        weight_difference: the largest of a weight after an epoch, as a share of how far the
            weights had moved by then.
        stopped: why later epochs were not: ``diverged`` (the loss of one process is far beyond a
            training's), ``rounding`` (differences of rounding have grown, step by step, beyond
            the tolerance) or ``wrong`` (the last of these epochs was); empty: nothing stopped it.
    """

    epochs: int = 0
    loss_difference: float = 0.0
    weight_difference: float = 0.0
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One training, in one mode.

    Attributes:
        mode: of ``MODES``, or ``REFERENCE``.
        epochs: in order.
        steps: of all epochs.
        collectives_per_step: as counted in its last step.
        bytes_per_step: that one rank gives to these collectives.
        communication_s: of a rank with a collective under way, the mean over the ranks.
        overlapped_s: the part of it that passed while the backward pass was still computing.
        comparison: with the reference; of that None.
    """

    mode: str
    epochs: tuple[Epoch, ...] = ()
    steps: int = 0
    collectives_per_step: int = 0
    bytes_per_step: int = 0
    communication_s: float = 0.0
    overlapped_s: float = 0.0
    comparison: Deviation | None = None

    @derived
    def time_s(self) -> float:
        """Of all epochs, tests and proofs left out."""
        return sum(epoch.time_s for epoch in self.epochs)


CLAIMS = ("replicas", "loss", "weights")


@dataclass(frozen=True, slots=True)
class TrainProof:
    """Something that a training claims, and whether it held.

    Attributes:
        mode: whose claim it is.
        claim: of ``CLAIMS``: all replicas are the same, bit for bit, after every epoch; the loss
            of every step, or every weight after an epoch, is that of one process.
        held: whether it did; None: it could not be found out.
        difference: the largest, see ``Deviation``; None where there is none.
        epoch: in which it was broken, counted from 1.
        ranks: that broke it, where that is known.
    """

    mode: str
    claim: str
    held: bool | None
    difference: float | None = None
    epoch: int | None = None
    ranks: tuple[int, ...] = ()


@dataclass(slots=True)
class Span:
    """What a rank did for a while.

    Attributes:
        step: counted from 0 over all epochs.
        track: ``COMPUTE``, or one of communication; they may run at the same time.
        name: what it was, ``backward``, ``all_reduce bucket 0``.
        start_s: on its host's monotonic clock.
        size_bytes: that were given to a collective; 0 for computing.
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
    """How a training went.

    Attributes:
        reference: the same batches on one process; None if the world failed.
        runs: one a mode, in order; empty if the world failed.
        proofs: all that had to hold.
        spans: what ranks did when; empty unless a timeline was asked for.
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
        """Whether every rank returned and all proofs held."""
        return self.world.ok and bool(self.proofs) and all(proof.held for proof in self.proofs)

    @property
    def broken(self) -> tuple[TrainProof, ...]:
        """The proofs that did not hold."""
        return tuple(proof for proof in self.proofs if proof.held is False)

    @property
    def open(self) -> tuple[TrainProof, ...]:
        """The proofs that could not be made."""
        return tuple(proof for proof in self.proofs if proof.held is None)


@dataclass(frozen=True, slots=True)
class EpochDone:
    """What rank 0 tells after each epoch.

    Attributes:
        mode: whose epoch has just ended, or ``REFERENCE``.
        epoch: counted from 1.
        done: epochs that have ended, of all modes and the reference.
    """

    mode: str
    epoch: int
    done: int
    loss: float
    accuracy: float
