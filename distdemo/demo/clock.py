"""What times a call: the host's clock, or the GPU's own.

A call on CUDA tensors returns when its work has been queued. So it is timed where it happens: an
event is recorded on the current stream before the call and one after it, and the GPU stamps each
when it gets there. torch makes the current stream wait for the end of a collective, whichever
stream that runs on, so the second event comes after its last byte. While the stream is idle an
event is stamped at once; what the host does between the two, as all of gloo's work, counts too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from distdemo.demo.records import EVENTS, HOST

if TYPE_CHECKING:
    import torch

    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec


class Clock(Protocol):
    """Marks moments, and says how far apart two are."""

    name: ClassVar[str]

    def mark(self) -> Any:  # noqa: ANN401 - what a clock makes, it alone reads
        """This moment, to be handed to ``between``."""

    def between(self, first: Any, second: Any) -> float:  # noqa: ANN401 - its own marks
        """Seconds from one to the other; returns when the second has come."""


class HostClock:
    """The host's."""

    name: ClassVar[str] = HOST

    def mark(self) -> float:
        """This moment, in seconds."""
        return time.perf_counter()

    def between(self, first: float, second: float) -> float:
        """Seconds from one to the other."""
        return second - first


class EventClock:
    """The current GPU's, on its current stream."""

    name: ClassVar[str] = EVENTS

    def mark(self) -> torch.cuda.Event:
        """An event that the stream passes when it has done what it was given so far."""
        import torch

        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch does not say its type
        event.record()
        return event

    def between(self, first: torch.cuda.Event, second: torch.cuda.Event) -> float:
        """Seconds from one to the other, to half a microsecond (cudaEventElapsedTime)."""
        second.synchronize()
        return float(first.elapsed_time(second)) / 1000.0


def clock_of(device: str, op: Op, spec: OpSpec) -> Clock:
    """The clock for this op: events where its tensors are on a GPU.

    Objects, and those who wait at a barrier, are on the host.
    """
    on_host = device == "cpu" or spec.objects or op.meets
    return HostClock() if on_host else EventClock()
