"""When something happened on a rank's device: the host's clock, or the GPU's own.

A call on CUDA tensors returns when its work has been queued. So it is timed where it happens: an
event is put on the current stream, which the GPU stamps when it gets there. torch makes that stream
wait for the end of a collective, whichever stream it runs on, so an event after the call comes
after its last byte.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch


class Clock(Protocol):
    """Marks moments, and reads the marks in seconds of the host's monotonic clock."""

    def begin(self) -> None:
        """Wait for the device; marks made before this can't be read any more."""

    def mark(self) -> Any:  # noqa: ANN401 - what a clock makes, it alone reads
        """This moment, or that in which the device gets here."""

    def settle(self) -> None:
        """Wait until the device has passed all marks."""

    def read(self, mark: Any) -> float:  # noqa: ANN401 - its own
        """When that was, once settled."""


class HostClock:
    """The host's, for what is done when its call returns; all processes of a machine share it."""

    def begin(self) -> None:
        """Nothing to wait for."""

    def mark(self) -> float:
        """This moment."""
        return time.monotonic()

    def settle(self) -> None:
        """Nothing to wait for."""

    def read(self, mark: float) -> float:
        """The mark itself."""
        return mark


class DeviceClock:
    """A GPU's own. What its stamps are on the host's clock is found anew by each ``begin``."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Wait for the device, and note what both clocks say."""
        self.settle()
        self._first = self.mark()
        self._first.synchronize()
        self._at = time.monotonic()

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


def clock_of(device: str) -> Clock:
    """The clock for tensors on this device."""
    return HostClock() if device == "cpu" else DeviceClock()
