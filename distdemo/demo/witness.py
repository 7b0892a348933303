"""Non-blocking calls, watched: when each call returned, what the buffer held then, and the wait.

Where an op has more than one call (irecv, then isend), the ranks meet at the store in between:
every irecv has returned before any isend is made, and every isend before any wait. So the events
prove that the calls came back before the data had to be there; it did not just happen so.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distdemo.demo.clock import clock_of
from distdemo.demo.holding import keep
from distdemo.demo.holdings import HOST, Event
from distdemo.demo.verify import same

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup, Work

    from distdemo.demo.part import Part
    from distdemo.launcher.rank import Rank
    from distdemo.ops.contract import Buffers


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one operation, and by which clock; the rest only of a non-blocking one."""

    seconds: float
    launch_seconds: float | None = None
    wait_seconds: float | None = None
    events: tuple[Event, ...] = ()
    clock: str = HOST


def witness(rank: Rank, part: Part, buffers: Buffers, group: ProcessGroup | None = None) -> Timing:
    """Collective: make the non-blocking calls, wait for them, and time both.

    When a call gave its handle back is the host's to say; how long the wait was, the device's, for
    there ``wait`` itself may return at once.
    """
    op, spec = part.op, part.spec
    stages = op.stages(buffers, spec, group)
    steps = len(stages) > 1 or "nonblocking" in op.takes
    watched = _Watch(rank, buffers) if steps else None
    handles: list[Work] = []
    launch = 0.0
    for number, stage in enumerate(stages):
        started = time.perf_counter()
        made = stage.call()
        launch += time.perf_counter() - started
        handles += made
        if watched is not None:
            if made:
                watched.note(f"{stage.name} returned", stage.tensors, stage.rule)
            rank.meet(f"{part.place}/{number}/{spec.member(0)}", spec.group_size)
    clock = clock_of(rank.device, op, spec)
    began = clock.mark()
    for handle in handles:
        handle.wait()
    waited = clock.between(began, clock.mark())
    rank.synchronize()
    if watched is not None and handles:
        watched.note("wait returned", buffers.recv, "free to be used")
    return Timing(launch + waited, launch, waited, _events(watched), clock.name)


def _events(watched: _Watch | None) -> tuple[Event, ...]:
    return () if watched is None else tuple(watched.events)


class _Watch:
    """Notes what buffers hold, and whether that is still what they held at first."""

    def __init__(self, rank: Rank, buffers: Buffers) -> None:
        self.events: list[Event] = []
        self._rank = rank
        tensors = [*buffers.send, *buffers.recv]
        self._first = {id(tensor): tensor.clone() for tensor in tensors}

    def note(self, what: str, tensors: list[Tensor], rule: str) -> None:
        """Add an event: what these tensors hold now."""
        now = time.monotonic()
        unchanged = all(same(tensor, self._first[id(tensor)]) for tensor in tensors)
        holds = keep(tensors, [None] * len(tensors))
        self.events.append(Event(self._rank.rank, now, what, holds, unchanged, rule))
