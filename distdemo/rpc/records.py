"""Result of ``rpc``: frozen records; no torch, no rich, no typer."""

from __future__ import annotations

from dataclasses import dataclass, field

from distdemo.encoding import derived
from distdemo.launcher.records import WorldReport

RAISED = r"On WorkerInfo\(id=(\d+), name=[\w:-]+\):\n(.+)"
"""Start of the message of an exception raised on another worker (torch 2.8 to 2.15)."""


@dataclass(frozen=True, slots=True)
class RpcCall:
    """One call that worker0 made.

    Attributes:
        callees: Ranks of the workers that ran the call.
        function: Function of torch: ``rpc_sync``, ``rpc_async``, ``remote``, ``rref.to_here``, ...
        what: Called function with its arguments.
        value: Returned value as text; empty if there is none.
        expected: Expected value, likewise.
        time_s: Seconds until the value was available.
    """

    callees: tuple[int, ...] = field(metadata={"json": False})
    function: str
    what: str
    value: str
    expected: str
    time_s: float

    @property
    def text(self) -> str:
        """Text of the call, such as ``rpc_sync add(3)``."""
        return f"{self.function} {self.what}".rstrip()

    @derived
    def callee(self) -> str:
        """Worker that ran the call, or several, such as ``worker1, worker2``."""
        return ", ".join(map(worker, self.callees))

    @derived
    def ok(self) -> bool:
        """True if the call returned the expected value."""
        return self.value == self.expected


@dataclass(frozen=True, slots=True)
class RpcReport:
    """Result of ``rpc``.

    Attributes:
        calls: Calls in order; empty if the world failed.
    """

    world: WorldReport
    calls: tuple[RpcCall, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if every worker returned and every call returned the expected value."""
        return self.world.ok and bool(self.calls) and not self.wrong

    @property
    def wrong(self) -> tuple[RpcCall, ...]:
        """Calls that returned a wrong value."""
        return tuple(call for call in self.calls if not call.ok)


def worker(rank: int) -> str:
    """Return the name of the worker with this rank."""
    return f"worker{rank}"
