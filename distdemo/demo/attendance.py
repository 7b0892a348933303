"""A barrier, watched: who came when, and whether anybody was let go before all had come.

Every rank adds itself to a counter in the store before it calls, and reads the counter when it has
left. A rank that reads less than all was let go too early: no clocks have to agree for that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distdemo.demo.holdings import Attendance, Mismatch, Verification

if TYPE_CHECKING:
    from collections.abc import Callable

    from distdemo.demo.part import Part
    from distdemo.demo.witness import Timing
    from distdemo.launcher.rank import Rank
    from distdemo.ops.spec import OpSpec


def dawdle(rank: Rank, part: Part) -> None:
    """If this rank is the straggler, come late.

    Not longer than it takes to see that somebody has already left, which is wrong.
    """
    if part.spec.straggler is None or part.spec.straggler != part.rank:
        return
    until = time.monotonic() + part.spec.straggler_delay_s
    left = f"{_counter(part)}/left"
    while (rest := until - time.monotonic()) > 0 and rank.count(left) == 0:
        time.sleep(min(rest, 0.002))


def attend(rank: Rank, part: Part, call: Callable[[], Timing]) -> tuple[Timing, Attendance]:
    """Collective: come, call, and see who was there.

    Args:
        rank: this rank of the world.
        part: what it has to do.
        call: makes the call and waits for it.
    """
    counter = _counter(part)
    arrived = time.monotonic()
    rank.count(counter, 1)
    timing = call()
    left = time.monotonic()
    present = rank.count(counter)
    rank.count(f"{counter}/left", 1)
    return timing, Attendance(arrived, left, present)


def verify_attendance(attendance: Attendance | None, spec: OpSpec) -> Verification:
    """Right if everybody of the group had come when this rank was let go."""
    if attendance is None:
        return Verification(ok=True, checked=0)
    if attendance.present == spec.group_size:
        return Verification(ok=True, checked=1)
    miss = Mismatch(0, (), attendance.present, spec.group_size)
    return Verification(ok=False, checked=1, wrong=1, mismatches=(miss,))


def _counter(part: Part) -> str:
    """The name of the counter of those who came to this barrier of this group."""
    return f"came/{part.place}/{part.spec.member(0)}"
