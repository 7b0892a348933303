"""What ``rpc`` is asked for, and what came of it: frozen records; no torch, no rich, no typer.

Losses are mean squared errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from distdemo.encoding import derived
from distdemo.launcher.records import WorldReport

Value = bool | int | float | str | tuple[float, ...]
"""What came back from a call: a number, the numbers of a tensor, or a description."""
RAISED = r"On WorkerInfo\(id=(\d+), name=[\w:-]+\):\n(.+)"
"""How torch begins the text of an exception that was raised on another worker (2.8 to 2.15)."""


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
class RpcCall:
    """One call that worker0 made.

    Attributes:
        callee: the worker that carried it out; of some calls several, ``worker1, worker2``.
        function: of torch: ``rpc_sync``, ``rpc_async``, ``remote``, ``rref.to_here``, ...
        what: was called, with its arguments.
        value: that came back.
        expected: that had to come back.
        start_s: when it was made, from the moment when all workers were connected.
        time_s: until its value was there.
    """

    callee: str
    function: str
    what: str
    value: Value
    expected: Value
    start_s: float
    time_s: float

    @derived
    def ok(self) -> bool:
        """Whether the right value came back."""
        return self.value == self.expected


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the model after both trainings.

    Attributes:
        name: ``hidden.weight``.
        owner: the worker that it lives on.
        remote: its numbers, trained over RPC and pulled back.
        local: its numbers after the same training in one process.
    """

    name: str
    owner: str
    shape: tuple[int, ...]
    remote: tuple[float, ...]
    local: tuple[float, ...]

    @derived
    def difference(self) -> float:
        """The largest of a number."""
        return apart(self.remote, self.local)


@dataclass(frozen=True, slots=True)
class Trainings:
    """Both trainings.

    Attributes:
        losses: over RPC: before each step, and after the last one.
        local_losses: the same of the training in one process.
    """

    losses: tuple[float, ...]
    local_losses: tuple[float, ...]
    parameters: tuple[Parameter, ...]
    time_s: float
    local_time_s: float


@dataclass(frozen=True, slots=True)
class RpcProof:
    """Something that has to hold.

    Attributes:
        claim: ``values`` (every call gave back the right one), ``concurrency`` (two asynchronous
            calls were under way at once), ``learning`` (the loss fell), ``losses`` and ``weights``
            (as in one process).
        tolerance: of the last two.
        difference: the largest that was found.
    """

    claim: str
    held: bool
    tolerance: float | None = None
    difference: float | None = None


@dataclass(frozen=True, slots=True)
class RpcReport:
    """How it went.

    Attributes:
        calls: in the order in which they were made; none if the world failed.
        training: None if the world failed.
        proofs: all that had to hold.
    """

    spec: RpcSpec
    world: WorldReport
    calls: tuple[RpcCall, ...] = ()
    training: Trainings | None = None
    proofs: tuple[RpcProof, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every worker returned, and everything held that had to."""
        return self.world.ok and bool(self.proofs) and all(proof.held for proof in self.proofs)


def apart(some: Sequence[float], others: Sequence[float]) -> float:
    """The largest difference; infinite where one side alone has a number, or more of them."""
    if len(some) != len(others):
        return math.inf
    largest = 0.0
    for one, other in zip(some, others, strict=True):
        if one != other and not (math.isnan(one) and math.isnan(other)):
            distance = abs(one - other)
            largest = max(largest, math.inf if math.isnan(distance) else distance)
    return largest


def worker(rank: int) -> str:
    """The name of the worker with this rank."""
    return f"worker{rank}"
