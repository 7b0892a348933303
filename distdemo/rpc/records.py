"""What ``rpc`` is asked for, and what came of it: frozen records; no torch, no rich, no typer.

Times are seconds on the caller's clock, from the moment when all workers were connected; losses
are mean squared errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from distdemo.launcher.records import WorldReport
from distdemo.ops.spec import Number

Value = Number | str | tuple[Number, ...]
"""What came back from a call: a number, the numbers of a tensor, or words about something else."""


@dataclass(frozen=True, slots=True)
class RpcSpec:
    """What to run.

    Attributes:
        steps: of the training.
        learning_rate: of SGD.
        seed: of the model's first weights.
    """

    steps: int = 20
    learning_rate: float = 0.2
    seed: int = 1234


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the timeline.

    Attributes:
        caller: the worker that made it.
        callee: the worker that carried it out; of some calls several, ``worker1, worker2``.
        kind: the function of torch: ``rpc_sync``, ``rpc_async``, ``remote``, ``to_here``, ...
        what: was called, with its arguments.
        value: that came back.
        expected: that had to come back.
        start: when it was made.
        seconds: until its value was there.
    """

    caller: str
    callee: str
    kind: str
    what: str
    value: Value
    expected: Value
    start: float
    seconds: float

    @property
    def words(self) -> str:
        """What was called, and how: ``rpc_sync add([1 2 3], 10)``."""
        return f"{self.kind} {self.what}".rstrip()

    @property
    def ok(self) -> bool:
        """Whether the right value came back."""
        return self.value == self.expected

    @property
    def end(self) -> float:
        """When its value was there."""
        return self.start + self.seconds


@dataclass(frozen=True, slots=True)
class Weights:
    """One parameter of the model after both trainings.

    Attributes:
        name: ``hidden.weight``.
        owner: the worker that it lives on.
        shape: of the tensor.
        remote: its numbers, trained over RPC and pulled back.
        local: its numbers after the same training in one process.
    """

    name: str
    owner: str
    shape: tuple[int, ...]
    remote: tuple[float, ...]
    local: tuple[float, ...]

    @property
    def difference(self) -> float:
        """How far the numbers are ``apart`` at most; infinite if one has more of them."""
        if len(self.remote) != len(self.local):
            return math.inf
        pairs = zip(self.remote, self.local, strict=True)
        return max((apart(one, other) for one, other in pairs), default=0.0)


@dataclass(frozen=True, slots=True)
class Lesson:
    """What the caller brings back: everything that was called, and both trainings.

    Attributes:
        calls: in the order in which they were made.
        losses: over RPC: before each step, and after the last one.
        local_losses: the same of the training in one process.
        weights: a parameter each.
        seconds: of the training over RPC.
        local_seconds: of the one in one process.
    """

    calls: tuple[Call, ...]
    losses: tuple[float, ...]
    local_losses: tuple[float, ...]
    weights: tuple[Weights, ...]
    seconds: float
    local_seconds: float


@dataclass(frozen=True, slots=True)
class Proof:
    """Something that has to hold."""

    claim: str
    held: bool
    found: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a training is, as worker0 tells it now and then.

    Attributes:
        steps: that are done.
        of: how many there are.
        remote: over RPC, or in one process.
    """

    steps: int
    of: int
    remote: bool


@dataclass(frozen=True, slots=True)
class RpcReport:
    """How it went.

    Attributes:
        lesson: None if the world failed.
        proofs: all that had to hold.
        notes: what a reader should know, in sentences.
    """

    spec: RpcSpec
    world: WorldReport
    lesson: Lesson | None = None
    proofs: tuple[Proof, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every worker returned, and everything held that had to."""
        return self.world.ok and bool(self.proofs) and all(proof.held for proof in self.proofs)


def apart(one: float, other: float) -> float:
    """How far two numbers are apart: 0 for two NaNs, and for two infinities of one sign.

    A number and a NaN are infinitely far apart.
    """
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    distance = abs(one - other)
    return math.inf if math.isnan(distance) else distance


def name_of(rank: int) -> str:
    """The name of the worker with this rank."""
    return f"worker{rank}"
