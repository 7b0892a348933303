"""What every rank of a check runs: many cases in one world, one after the other, each verified.

The result of a case goes to the launcher right away, so that a case that kills or hangs the
world takes nothing with it but itself.
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
        number: the case's place in the whole list.
        time_s: from when the rank began with it until it had verified it.
        wrong: what was wrong, in lines; empty if nothing was.
    """

    number: int
    time_s: float
    wrong: tuple[str, ...] = ()


def case_of(phase: str) -> int | None:
    """The number of the case that a rank was in when it reached this phase; None: in none."""
    found = re.search(r"\bcase (\d+)$", phase)
    return int(found[1]) if found else None


def run_cases(rank: Rank, cases: Sequence[tuple[int, Case]]) -> None:
    """Collective: run these cases in order, and send the result of each.

    Args:
        rank: this rank of the world.
        cases: each with its place in the whole list.

    Raises:
        Exception: what a case raised; the world can't be trusted after that.
    """
    groups = Groups(rank.backend)
    for number, case in cases:
        place = f"case {number}"  # among the phases of the rank, and where its ranks meet
        rank.reach(place)
        entered = time.monotonic()
        part = part_of(rank.rank, case.op, case.specs, place)
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
            index = ", ".join(map(str, miss.index)) or "of the scalar"
            wrong.append(
                f"rank {rank.rank}, piece {miss.piece}, index {index}: got {miss.got}, "
                f"expected {miss.expected}"
            )
        rank.tell(CaseFinding(number, time.monotonic() - entered, tuple(wrong)))
