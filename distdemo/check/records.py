"""What came of a check, of the backends that are here, and of a probe: frozen; no torch, no rich.

Field names are those of the JSON documents: ``_s`` is seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from distdemo.backends.capabilities import CapabilityMap

Status = Literal["passed", "failed", "not supported", "not run"]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How one case of ``check`` went.

    Attributes:
        id: names the case, ``all_gather/single/int32/n3/2x3/async``; unique in a report.
        op: torch's name of the operation, ``all_gather``.
        form: which form of it, ``single``.
        dtype: the element type; ``object`` for object collectives, ``none`` for a barrier.
        world_size: ranks of its world.
        seconds: from the moment the first rank entered it until the last one had verified it; 0
            for a case that did not run.
        why: one line: what was wrong, why it is not supported, or why it was not run.
        command: a command line that runs this case alone.
        details: further lines: wrong elements, how each rank ended.
    """

    id: str
    op: str
    form: str
    dtype: str
    world_size: int
    status: Status
    seconds: float = 0.0
    why: str = ""
    command: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckReport:
    """How a whole matrix of cases went.

    Attributes:
        scope: ``quick`` or ``full``.
        seed: of the order of the cases and of their values.
        worlds: how many worlds were started for it.
        interrupted: a signal ended it early; what was left counts as not run.
    """

    backend: str
    device: str
    scope: str
    seed: int
    results: tuple[CaseResult, ...]
    seconds: float
    worlds: int
    versions: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    def count(self, status: Status) -> int:
        """How many cases ended so."""
        return sum(result.status == status for result in self.results)

    @property
    def ok(self) -> bool:
        """Whether at least one case ran, and all that the backend supports ran and passed."""
        return bool(self.count("passed")) and not (self.count("failed") or self.count("not run"))


@dataclass(frozen=True, slots=True)
class BackendEntry:
    """One backend of torch.distributed, as found here.

    Attributes:
        devices: whose tensors it takes.
        missing: why this torch or machine can't use it; empty if it can.
        get: how to get it where it is missing.
        version: of the library behind it, if it has one of its own.
        works: whether it did when it was tried; None if it was not.
        tried: what came of that.
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
class MapReport:
    """What a backend was found to take.

    Attributes:
        disagreements: where PyTorch's documentation says otherwise, in lines.
        tried: how many combinations.
        worlds: in how many worlds.
        differences: where the built-in map says otherwise, in lines.
        known: the torch release of the built-in map; empty if there is none.
    """

    found: CapabilityMap
    disagreements: tuple[str, ...]
    tried: int
    worlds: int
    seconds: float
    differences: tuple[str, ...] = ()
    known: str = ""
