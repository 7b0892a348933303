"""Result of ``rpc``: frozen records; no torch, no rich, no typer."""

from __future__ import annotations

from dataclasses import dataclass, field

from distdemo.encoding import derived
from distdemo.launcher.records import WorldReport

Value = bool | int | float | str | tuple[float, ...]
"""What came back from a call: a number, the numbers of a tensor, or a description."""
RAISED = r"On WorkerInfo\(id=(\d+), name=[\w:-]+\):\n(.+)"
"""How torch begins the text of an exception that was raised on another worker (2.8 to 2.15)."""


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
class RpcReport:
    """How it went.

    Attributes:
        calls: in the order in which they were made; none if the world failed.
    """

    world: WorldReport
    calls: tuple[RpcCall, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if every worker returned, and every call the right value."""
        return self.world.ok and bool(self.calls) and not self.wrong

    @property
    def wrong(self) -> tuple[RpcCall, ...]:
        """Calls that returned a wrong value."""
        return tuple(call for call in self.calls if not call.ok)


def worker(rank: int) -> str:
    """The name of the worker with this rank."""
    return f"worker{rank}"
