"""Results of ``check`` and ``backends``. Doesn't import torch or rich.

The fields have the same names in the JSON documents; ``_s`` means seconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, get_args

from distdemo import backends
from distdemo.backends.contract import Failure
from distdemo.encoding import derived
from distdemo.ops import REGISTRY
from distdemo.ops.spec import Call

Status = Literal["passed", "failed", "known wrong", "unavailable", "not supported", "not run"]
"""Known wrong: the result is wrong in this torch and fixed later, according to the map.
Unavailable: this machine has too few GPUs. Not run: the check ended before."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Result of one case of ``check``.

    Attributes:
        id: Unique ID in the report, such as ``all_gather/single/int32/n3/2x3/async``. ``distdemo
            check --case ID`` runs only this case.
        op: Call of the first group.
        world_size: Number of ranks.
        status: Outcome of the case.
        time_s: Longest time of a rank until it had verified the case; 0 if the case did not run.
        why: Reason in one line if the case didn't pass.
        details: Further lines about wrong elements and failed ranks.
        failure: How the case failed, if it did.
    """

    id: str
    op: Call
    world_size: int
    status: Status
    time_s: float = 0.0
    why: str = ""
    details: tuple[str, ...] = ()
    failure: Failure | None = None

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
        scope: ``quick``, ``full`` or ``probe``.
        worlds: Number of worlds that were started.
        strict: True if a case that is skipped on this machine or release is a failure.
    """

    scope: str
    backend: str
    device: str
    cases: tuple[CaseResult, ...]
    time_s: float
    worlds: int
    versions: dict[str, str] = field(default_factory=dict)
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
    def complete(self) -> bool:
        """True if every case that the backend supports ran."""
        skipped = self.of("known wrong") or self.of("unavailable") or self.of("not run")
        return bool(self.of("passed") or self.of("failed")) and not skipped

    @property
    def ok(self) -> bool:
        """True if at least one case ran, no case failed, and the check didn't end early.

        Cases that are skipped on this machine or in this release count only with ``strict``.
        """
        passed = bool(self.of("passed")) and not (self.of("failed") or self.of("not run"))
        return passed and (self.complete or not self.strict)

    def command(self, case: CaseResult) -> str:
        """Return the command line that runs only this case."""
        backend = backends.REGISTRY[self.backend].option
        return f"distdemo check --case {case.id} --backend {backend} --device {self.device}"


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
    def complete(self) -> bool:
        """True if every available backend was tried, and there is one."""
        available = [entry for entry in self.backends if not entry.missing]
        return bool(available) and all(entry.works is not None for entry in available)

    @property
    def ok(self) -> bool:
        """True if at least one backend works and no available backend fails."""
        trials = [entry.works for entry in self.backends if entry.works is not None]
        return bool(trials) and all(trials)
