"""Results of ``check`` and ``backends``. Doesn't import torch or rich.

The fields have the same names in the JSON documents; ``_s`` means seconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, get_args

from distdemo.encoding import derived
from distdemo.ops import REGISTRY
from distdemo.ops.spec import Call

Status = Literal["passed", "failed", "known wrong", "not supported", "not run"]
"""Known wrong: the result is wrong in this torch and fixed later, according to the map."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Result of one case of ``check``.

    Attributes:
        id: Unique ID in the report, such as ``all_gather/single/int32/n3/2x3/async``.
        op: Call of the first group.
        world_size: Number of ranks.
        status: Outcome of the case.
        time_s: Longest time of a rank until it had verified the case; 0 if the case did not run.
        why: Reason in one line if the case didn't pass.
        command: Command line that runs only this case.
        details: Further lines about wrong elements and failed ranks.
    """

    id: str
    op: Call
    world_size: int
    status: Status
    time_s: float = 0.0
    why: str = ""
    command: str = ""
    details: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        """Form of the operation, such as ``single``."""
        op = REGISTRY.get(self.op.op)
        return op.form(self.op).name if op is not None else "any"

    @property
    def dtype(self) -> str:
        """Element type; ``object`` for object collectives, ``none`` for a barrier."""
        return self.op.dtype or ("object" if self.op.objects else "none")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Result of a whole matrix of cases.

    Attributes:
        scope: ``quick`` or ``full``.
        seed: Seed of the order and values of the cases.
        worlds: Number of worlds that were started.
        interrupted: True if a signal ended the check early. The remaining cases are not run.
        strict: True if cases known to be wrong in this release count as failures.
    """

    scope: str
    backend: str
    device: str
    seed: int
    cases: tuple[CaseResult, ...]
    time_s: float
    worlds: int
    versions: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    strict: bool = False

    @derived
    def counts(self) -> dict[str, int]:
        """Number of cases by status."""
        counts = Counter(case.status for case in self.cases)
        by_name = {name.replace(" ", "_"): counts[name] for name in get_args(Status)}
        return {"total": len(self.cases), **by_name}

    def of(self, status: Status) -> list[CaseResult]:
        """Return the cases with this status."""
        return [case for case in self.cases if case.status == status]

    @property
    def ok(self) -> bool:
        """True if at least one case ran, and all cases that the backend supports passed.

        Cases known to be wrong in this release are ignored unless ``strict`` is set. An interrupted
        check is never ok.
        """
        if self.interrupted or (self.strict and self.of("known wrong")):
            return False
        return bool(self.of("passed")) and not (self.of("failed") or self.of("not run"))


@dataclass(frozen=True, slots=True)
class BackendEntry:
    """One backend of torch.distributed on this machine.

    Attributes:
        devices: Devices whose tensors it accepts.
        missing: Reason this torch or machine can't use it; empty if it can.
        get: Installation instructions if it is missing.
        version: Version of the underlying library, or "".
        works: True if the trial succeeded; None if it wasn't tried.
        tried: Outcome of the trial.
    """

    name: str
    summary: str
    devices: tuple[str, ...]
    missing: str = ""
    get: str = ""
    version: str = ""
    works: bool | None = None
    tried: str = ""


@dataclass(frozen=True, slots=True)
class BackendList:
    """List of all backends, whether available or not."""

    backends: tuple[BackendEntry, ...]

    @property
    def ok(self) -> bool:
        """True if at least one backend works and no available backend fails."""
        trials = [entry.works for entry in self.backends if entry.works is not None]
        return bool(trials) and all(trials)
