"""Run and verify the cases of a check in every rank.

The result of each case is sent to the launcher immediately, so that no result is lost if a later
case kills or hangs the world.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distdemo.demo.part import Groups, inference, part_of
from distdemo.demo.rank import run_part, verify_part
from distdemo.ops.buffers import make_buffers

if TYPE_CHECKING:
    from distdemo.check.matrix import Case
    from distdemo.launcher.rank import Rank


@dataclass(frozen=True, slots=True)
class CaseFinding:
    """One rank's result of one case.

    Attributes:
        number: Index of the case in the list of all cases.
        time_s: Seconds from the start of the case until it was verified.
        wrong: Lines about wrong elements; empty if the case passed.
    """

    number: int
    time_s: float
    wrong: tuple[str, ...] = ()


def case_of(phase: str) -> int | None:
    """Return the number of the case that a phase belongs to, or None."""
    found = re.search(r"\bcase (\d+)$", phase)
    return int(found[1]) if found else None


def run_cases(rank: Rank, cases: Sequence[tuple[int, Case]]) -> None:
    """Run cases in order and send the result of each. Collective.

    Args:
        rank: Handle of this rank.
        cases: Cases with their indices in the list of all cases.

    Raises:
        Exception: The exception of a case, after which the world can't be trusted.
    """
    groups = Groups(rank.backend)
    for number, case in cases:
        name = f"case {number}"  # of the phase and the barrier
        rank.reach(name)
        entered = time.monotonic()
        part = part_of(rank.rank, case.op, case.specs, name)
        group = groups.of(case.specs, part)
        with inference(part.spec):
            buffers = make_buffers(part.op, part.rank, part.spec, rank.device)
            attendance = run_part(rank, part, buffers, group).attendance
            found = verify_part(part, buffers, attendance)
        wrong = (
            []
            if found.ok
            else [f"Rank {rank.rank}: {found.wrong} of {found.checked} elements are wrong."]
        )
        for miss in found.mismatches[:3]:
            index = ", ".join(map(str, miss.index)) or "() of a scalar"
            wrong.append(
                f"rank {rank.rank}, piece {miss.piece}, index {index}: got {miss.got}, "
                f"expected {miss.expected}"
            )
        rank.send(CaseFinding(number, time.monotonic() - entered, tuple(wrong)))
