"""A barrier, watched: who came when, and whether anybody was let go before all had come.

Every rank adds itself to a counter in the store before it calls, and reads the counter when it has
left. A rank that reads less than all was let go too early: no clocks have to agree for that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distdemo.holdings import Attendance, Mismatch, Verification

if TYPE_CHECKING:
    from collections.abc import Callable

    from distdemo.launchers.rank import Rank
    from distdemo.model import OpSpec
    from distdemo.programs.part import Part
    from distdemo.programs.witness import Timing


def attend(rank: Rank, part: Part, call: Callable[[], Timing]) -> tuple[Timing, Attendance]:
    """Collective: come (late, if this rank is the straggler), call, and see who was there.

    Args:
        rank: this rank of the world.
        part: what it has to do.
        call: makes the call and waits for it.
    """
    spec = part.spec
    counter = f"came/{part.place}/{spec.member(0)}"
    if spec.straggler is not None and spec.straggler[0] == part.rank:
        _dawdle(rank, counter, spec.straggler[1])
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
    if attendance.present == spec.world_size:
        return Verification(ok=True, checked=1)
    miss = Mismatch(0, (), attendance.present, spec.world_size)
    return Verification(ok=False, checked=1, wrong=1, mismatches=(miss,))


def _dawdle(rank: Rank, counter: str, seconds: float) -> None:
    """Come late; not longer than needed to see that somebody has already left."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and rank.count(f"{counter}/left") == 0:
        time.sleep(min(left, 0.002))
