"""Results of ``check`` and ``backends``: frozen; no torch, no rich.

Field names are those of the JSON documents: ``_s`` is seconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, get_args

from distdemo.encoding import derived

Status = Literal["passed", "failed", "known wrong", "not supported", "not run"]
"""Known wrong: by the map it gives a wrong result in this release of torch, and is mended later."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How one case of ``check`` went.

    Attributes:
        id: names the case, ``all_gather/single/int32/n3/2x3/async``; unique in a report.
        op: torch's name of the operation, ``all_gather``.
        form: which form of it, ``single``.
        dtype: the element type; ``object`` for object collectives, ``none`` for a barrier.
        world_size: ranks of its world.
        time_s: from the moment the first rank entered it until the last one had verified it; 0
            for a case that did not run.
        why: one line: what was wrong, why it is not supported, or why it was not run.
        reduce_op: empty where there is none.
        command: a command line that runs this case alone.
        details: further lines: wrong elements, how each rank ended.
    """

    id: str
    op: str
    form: str
    dtype: str
    world_size: int
    status: Status
    time_s: float = 0.0
    why: str = ""
    command: str = ""
    details: tuple[str, ...] = ()
    reduce_op: str = ""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """How a whole matrix of cases went.

    Attributes:
        scope: ``quick`` or ``full``.
        seed: of the order of the cases and of their values.
        worlds: how many worlds were started for it.
        interrupted: a signal ended it early; what was left counts as not run.
        strict: what is known to be wrong in this release counts as a failure.
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
        """How many cases ended how."""
        found = Counter(case.status for case in self.cases)
        tallies = {name.replace(" ", "_"): found[name] for name in get_args(Status)}
        return {"total": len(self.cases), **tallies}

    def of(self, status: Status) -> list[CaseResult]:
        """The cases that ended so."""
        return [case for case in self.cases if case.status == status]

    @property
    def ok(self) -> bool:
        """Whether at least one case ran, and all that the backend supports ran and passed.

        What is known to be wrong in this release does not count, unless it is ``strict``.
        """
        if self.strict and self.of("known wrong"):
            return False
        return bool(self.of("passed")) and not (self.of("failed") or self.of("not run"))


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
        implementation: which one its name means in this torch, where there are several.
    """

    name: str
    summary: str
    devices: tuple[str, ...]
    missing: str = ""
    get: str = ""
    version: str = ""
    works: bool | None = None
    tried: str = ""
    implementation: str = ""


@dataclass(frozen=True, slots=True)
class BackendList:
    """The backends that are here, and those that are not."""

    backends: tuple[BackendEntry, ...]

    @property
    def ok(self) -> bool:
        """Whether one works at least, and none that is here fails."""
        works = [each.works for each in self.backends if each.works is not None]
        return bool(works) and all(works)
