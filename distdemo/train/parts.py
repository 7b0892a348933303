"""What a rank brings back from a training; frozen, and small: no weights travel."""

from __future__ import annotations

from dataclasses import dataclass

from distdemo.train.records import Span


@dataclass(frozen=True, slots=True)
class EpochPart:
    """One pass, as one rank saw it.

    Attributes:
        loss: over the samples of all ranks.
        accuracy: on all tests.
        seconds: of this rank, tests and proofs left out.
        checksum: of its weights afterwards.
    """

    loss: float
    accuracy: float
    seconds: float
    checksum: str


@dataclass(frozen=True, slots=True)
class ModePart:
    """A training in one mode, as one rank saw it; the fields are those of ``training.Run``.

    Attributes:
        spans: with their start on the host's monotonic clock; empty if no trace was asked for.
    """

    mode: str
    epochs: tuple[EpochPart, ...]
    steps: int
    collectives: int
    step_bytes: int
    communication: float
    overlapped: float
    first_collectives: int = 0
    spans: tuple[Span, ...] = ()

    @property
    def seconds(self) -> float:
        """Of all epochs."""
        return sum(epoch.seconds for epoch in self.epochs)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What rank 0 found when it compared weights.

    Attributes:
        reference: the training on one process.
        epochs: how many can be compared, from the first (see ``reference``); the weights are those
            after the last of these.
        moved: how far a weight of the reference had gone by then, at most.
        differences: by mode, the largest difference of a weight from the reference's.
        apart: the largest difference of a weight between two modes.
    """

    reference: ModePart
    epochs: int
    moved: float
    differences: dict[str, float]
    apart: float = 0.0


@dataclass(frozen=True, slots=True)
class RankPart:
    """All that a rank brings back.

    Attributes:
        modes: in order.
        comparison: of rank 0 alone.
    """

    rank: int
    modes: tuple[ModePart, ...]
    comparison: Comparison | None = None
