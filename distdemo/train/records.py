"""What ``train`` is asked for, and what came of it: frozen records; no torch, no rich, no typer.

Times are seconds; losses are means of the cross entropy over samples, in nats; accuracies are
shares, 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from distdemo.launcher.records import WorldReport

MODES = ("manual", "flat", "ddp")
"""The ways to average gradients; ``compare`` runs all of them."""
REFERENCE = "single"
"""The name of the run on one process."""
DATASETS = ("generated", "digits", "mnist")
PARTITIONS = ("shuffle", "sampler")


@dataclass(frozen=True, slots=True)
class TrainSpec:
    """A training to run.

    Attributes:
        mode: of ``MODES``, or ``compare``.
        dataset: of ``DATASETS``.
        data_dir: the folder of MNIST's IDX files; empty unless ``dataset`` is ``mnist``.
        partition: of ``PARTITIONS``: a seeded shuffle cut into parts, or DistributedSampler.
        epochs: how often all samples are seen.
        batch_size: samples of a step on all ranks together; each rank takes an equal share.
        learning_rate: of SGD.
        momentum: of SGD.
        hidden: units of the hidden layer.
        seed: of data, shuffles and first weights.
        bucket_mb: DistributedDataParallel's ``bucket_cap_mb``, in MiB.
        trace: keep what every rank did when.
    """

    mode: str = "compare"
    dataset: str = "generated"
    data_dir: str = ""
    partition: str = "shuffle"
    epochs: int = 5
    batch_size: int = 64
    learning_rate: float = 0.1
    momentum: float = 0.9
    hidden: int = 64
    seed: int = 1234
    bucket_mb: float = 0.004
    trace: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """What is learned.

    Attributes:
        words: what the data is, in a few words for people.
        samples: that are trained on.
        tests: samples that accuracy is measured on.
        features: numbers of a sample.
        classes: to tell apart.
        parameters: numbers of the model.
    """

    words: str
    samples: int
    tests: int
    features: int
    classes: int
    parameters: int


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over all samples.

    Attributes:
        loss: over the samples of all ranks, each at the weights that it was seen with.
        accuracy: on the tests, after it.
        seconds: of the slowest rank, tests and proofs left out.
        checksums: of every rank's weights after it, hexadecimal; of the reference: one.
    """

    loss: float
    accuracy: float
    seconds: float
    checksums: tuple[str, ...]

    @property
    def alike(self) -> bool:
        """Whether all replicas are the same, bit for bit."""
        return len(set(self.checksums)) == 1


@dataclass(frozen=True, slots=True)
class Run:
    """One training, in one mode.

    Attributes:
        mode: of ``MODES``, or ``REFERENCE``.
        epochs: in order.
        steps: of all epochs.
        collectives: a step, as counted in its last step.
        step_bytes: that one rank gives to these collectives in a step.
        seconds: of the slowest rank: all epochs, tests and proofs left out.
        communication: seconds of a rank with a collective under way, the mean over the ranks.
        overlapped: the part of it that passed while the backward pass was still computing.
        difference: the largest difference of a weight from the reference's, at the end of the last
            epoch that can be compared (``programs.train.reference``); NaN if none can.
        loss_difference: the largest relative difference of an epoch's loss from the reference's, of
            these epochs; NaN if there are none.
        first_collectives: of the first step, which may differ: DDP groups its buckets anew after
            it.
    """

    mode: str
    epochs: tuple[Epoch, ...]
    steps: int
    collectives: int
    step_bytes: int
    seconds: float
    communication: float = 0.0
    overlapped: float = 0.0
    difference: float = 0.0
    loss_difference: float = 0.0
    first_collectives: int = 0


@dataclass(frozen=True, slots=True)
class Proof:
    """Something that a training claims, and whether it held.

    Attributes:
        claim: in words, with the tolerance.
        held: whether it did; None: it could not be found out.
        found: what was found, in words: the largest difference, the ranks and epoch that differ;
            or why nothing could be compared.
        ranks: that broke it, where that is known.
        mode: whose claim it is; empty if it is that of several.
        about: the claim in a few words, the same for every mode.
        difference: the largest that was found, in the unit of the tolerance; None: there is none.
    """

    claim: str
    held: bool | None
    found: str
    ranks: tuple[int, ...] = ()
    mode: str = ""
    about: str = ""
    difference: float | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """What a rank did for a while.

    Attributes:
        track: ``compute`` or ``communication``; they may run at the same time.
        name: what it was, ``backward``, ``all_reduce bucket 0``.
        start: seconds from the first span of the world (on each host: of that host).
        mode: in which training.
        step: counted from 0 over all epochs.
        size: bytes that were moved; 0 for computing.
    """

    rank: int
    track: str
    name: str
    start: float
    seconds: float
    mode: str
    step: int
    size: int = 0


@dataclass(frozen=True, slots=True)
class TrainReport:
    """How a training went.

    Attributes:
        task: None if the world failed before it was known.
        reference: the same batches on one process; None if the world failed.
        runs: a run a mode, in order; empty if the world failed.
        proofs: all that had to hold.
        comparable: how many epochs, from the first, could be compared with the reference.
        spans: in order of their start; empty unless a trace was asked for.
        notes: what a reader should know, in sentences.
    """

    spec: TrainSpec
    world: WorldReport
    task: Task | None = None
    reference: Run | None = None
    runs: tuple[Run, ...] = ()
    proofs: tuple[Proof, ...] = ()
    comparable: int = 0
    spans: tuple[Span, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every rank returned and all proofs held."""
        return self.world.ok and bool(self.proofs) and all(proof.held for proof in self.proofs)

    @property
    def broken(self) -> tuple[Proof, ...]:
        """The proofs that did not hold."""
        return tuple(proof for proof in self.proofs if proof.held is False)

    @property
    def open(self) -> tuple[Proof, ...]:
        """The proofs that could not be made."""
        return tuple(proof for proof in self.proofs if proof.held is None)


@dataclass(frozen=True, slots=True)
class Progress:
    """What rank 0 tells while it trains.

    Attributes:
        mode: that is trained now, or ``REFERENCE``.
        epoch: that has just ended, counted from 1.
        done: epochs that have ended, of all modes and the reference.
        total: epochs there are, of all modes and the reference.
    """

    mode: str
    epoch: int
    done: int
    total: int
    loss: float
    accuracy: float
