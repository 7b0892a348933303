"""The check on every rank: many cases one after the other in one world, each verified at once.

What came of a case is told to the launcher right away, so that a case that kills or hangs the
world takes nothing with it but itself.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distdemo.demo.part import Groups, inference, part_of
from distdemo.demo.rank import run_part, verify_part
from distdemo.ops.buffers import make_buffers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distdemo.check.cases import Case
    from distdemo.demo.records import Verification
    from distdemo.launcher.rank import Rank


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rank says of one case.

    Attributes:
        number: the case's place in the whole list.
        entered: when the rank began with it, on the clock that all ranks of a machine share.
        done: when it had verified it.
        wrong: what was wrong, in lines; empty if nothing was.
    """

    number: int
    entered: float
    done: float
    wrong: tuple[str, ...] = ()


def place_of(number: int) -> str:
    """What a case is called among the phases of a rank, and where its ranks meet."""
    return f"case {number}"


def case_of(phase: str) -> int | None:
    """The number of the case that a rank was in when it reached this phase; None: in none."""
    found = re.search(r"\bcase (\d+)$", phase)
    return int(found[1]) if found else None


def run_cases(rank: Rank, cases: Sequence[tuple[int, Case]]) -> None:
    """Collective: run these cases in order, and tell what came of each.

    Args:
        rank: this rank of the world.
        cases: each with its place in the whole list.

    Raises:
        Exception: whatever a case raised; the world can't be trusted after that.
    """
    groups = Groups(rank.backend)
    for number, case in cases:
        rank.reach(place_of(number))
        rank.tell(_judge(rank, number, case, groups))


def _judge(rank: Rank, number: int, case: Case, groups: Groups) -> Finding:
    """Collective: run one case and verify it."""
    entered = time.monotonic()
    part = part_of(rank.rank, case.op, case.specs, place_of(number))
    group = groups.of(case.specs, part)
    with inference(part.spec):
        buffers = make_buffers(part.op, part.rank, part.spec, rank.device)
        attendance = run_part(rank, part, buffers, group).attendance
        verification = verify_part(part, buffers, attendance)
    wrong = () if verification.ok else tuple(_lines(rank.rank, verification))
    return Finding(number, entered, time.monotonic(), wrong)


def _lines(rank: int, verification: Verification) -> list[str]:
    """What is wrong on this rank: how much, and the first elements of it."""
    lines = [f"Rank {rank}: {verification.wrong} of {verification.checked} elements are wrong."]
    for miss in verification.mismatches[:3]:
        index = ", ".join(map(str, miss.index)) or "of the scalar"
        lines.append(
            f"rank {rank}, piece {miss.piece}, index {index}: got {miss.got}, "
            f"expected {miss.expected}"
        )
    return lines
