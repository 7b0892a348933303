"""When something happened on a rank's device: the host's clock, or the GPU's own.

A call on CUDA tensors returns when its work has been queued. So it is timed where it happens: an
event is put on the current stream, which the GPU stamps when it gets there. torch makes that stream
wait for the end of a collective, whichever stream it runs on, so an event after the call comes
after its last byte.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch


HOST = "perf_counter"
"""The host's clock, which is the same in all processes of a machine."""
EVENTS = "CUDA events"


class Clock:
    """The host's, for what is done when its call returns.

    It marks moments, and reads the marks in seconds of the host's clock.
    """

    name: ClassVar[str] = HOST

    def begin(self) -> None:
        """Wait for the device; marks made before this can't be read any more."""

    def mark(self) -> Any:  # noqa: ANN401 - what a clock makes, it alone reads
        """This moment, or that in which the device gets here."""
        return time.perf_counter()

    def settle(self) -> None:
        """Wait until the device has passed all marks."""

    def read(self, mark: Any) -> float:  # noqa: ANN401 - its own
        """When that was, once settled."""
        return float(mark)

    def between(self, first: Any, second: Any) -> float:  # noqa: ANN401 - its own
        """Seconds from one mark to another; returns when the second has come."""
        return float(second - first)


class DeviceClock(Clock):
    """A GPU's own. What its stamps are on the host's clock is found anew by each ``begin``."""

    name: ClassVar[str] = EVENTS

    def begin(self) -> None:
        """Wait for the device, and note what both clocks say."""
        self.settle()
        self._first = self.mark()
        self._first.synchronize()
        self._at = time.perf_counter()

    def mark(self) -> torch.cuda.Event:
        """An event on the current stream."""
        import torch

        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch does not say its type
        event.record()
        return event

    def settle(self) -> None:
        """Wait for the device."""
        import torch

        torch.cuda.synchronize()

    def read(self, mark: torch.cuda.Event) -> float:
        """When the GPU passed it, to some microseconds."""
        return self._at + float(self._first.elapsed_time(mark)) / 1000.0

    def between(self, first: torch.cuda.Event, second: torch.cuda.Event) -> float:
        """Seconds from one to the other, to half a microsecond (cudaEventElapsedTime)."""
        second.synchronize()
        return float(first.elapsed_time(second)) / 1000.0


def clock_of(device: str) -> Clock:
    """The clock for tensors on this device."""
    return Clock() if device == "cpu" else DeviceClock()
