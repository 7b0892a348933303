"""Non-blocking calls, watched: when each call returned, what the buffer held then, and the wait.

Where an op has more than one call (irecv, then isend), the ranks meet at the store in between:
every irecv has returned before any isend is made, and every isend before any wait. So the events
prove that the calls came back before the data had to be there; it did not just happen so.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distdemo.model import Event, OpSpec

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launchers.rank import Rank
    from distdemo.ops.contract import Buffers, Op


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one operation; the parts and the events only of a non-blocking one."""

    seconds: float
    launch_seconds: float | None = None
    wait_seconds: float | None = None
    events: tuple[Event, ...] = ()


def witness(rank: Rank, op: Op, spec: OpSpec, buffers: Buffers) -> Timing:
    """Collective: make the non-blocking calls, wait for them, and time both."""
    stages = op.stages(buffers, spec, None)
    held = [tensor.clone() for tensor in buffers.recv]
    handles = []
    events = []
    launch = 0.0
    for number, (name, call) in enumerate(stages):
        started = time.perf_counter()
        made = call()
        launch += time.perf_counter() - started
        handles += made
        if len(stages) > 1:
            if made:
                events.append(_event(rank, f"{name} returned", buffers.recv, held))
            rank.meet(f"{op.name}/{number}")
    started = time.perf_counter()
    for handle in handles:
        handle.wait()
    rank.synchronize()
    waited = time.perf_counter() - started
    if len(stages) > 1 and handles:
        events.append(_event(rank, "wait returned", buffers.recv, held))
    return Timing(launch + waited, launch, waited, tuple(events))


def _event(rank: Rank, what: str, tensors: list[Tensor], held: list[Tensor]) -> Event:
    from distdemo.programs.holding import keep
    from distdemo.programs.verify import same

    now = time.monotonic()
    unchanged = all(same(tensor, before) for tensor, before in zip(tensors, held, strict=True))
    return Event(rank.rank, now, what, keep(tensors, [None] * len(tensors)), unchanged)
