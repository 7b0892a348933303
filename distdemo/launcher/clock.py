"""Clocks for events on a rank's device: the host's clock, or the GPU's.

A call on CUDA tensors returns when its work is queued, so the GPU must do the timing: it stamps an
event when it reaches it on the current stream. torch makes that stream wait for the end of a
collective, whichever stream the collective runs on, so an event after the call is stamped after the
last byte.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch


HOST = "perf_counter"
"""The host's clock, shared by all processes of a machine."""
EVENTS = "CUDA events"


class Clock:
    """The host's clock, for work that is complete when its call returns.

    A mark records a moment and is read in seconds of the host's clock.
    """

    name: ClassVar[str] = HOST

    def begin(self) -> None:
        """Wait for the device and invalidate earlier marks."""

    def mark(self) -> Any:
        """Return a mark for this moment, or for when the device reaches this point."""
        return time.perf_counter()

    def settle(self) -> None:
        """Wait until the device has reached all marks."""

    def read(self, mark: Any) -> float:
        """Return the time of a mark; call ``settle`` first."""
        return float(mark)

    def between(self, first: Any, second: Any) -> float:
        """Return the seconds between two marks; wait for the second."""
        return float(second - first)


class DeviceClock(Clock):
    """A GPU's clock, which each ``begin`` aligns with the host's."""

    name: ClassVar[str] = EVENTS

    def begin(self) -> None:
        """Wait for the device and align both clocks."""
        self.settle()
        self._first = self.mark()
        self._first.synchronize()
        self._at = time.perf_counter()

    def mark(self) -> torch.cuda.Event:
        """Return an event on the current stream."""
        import torch

        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch does not say its type
        event.record()
        return event

    def settle(self) -> None:
        """Wait for the device."""
        import torch

        torch.cuda.synchronize()

    def read(self, mark: torch.cuda.Event) -> float:
        """Return the time at which the GPU reached the event, to a few microseconds."""
        return self._at + float(self._first.elapsed_time(mark)) / 1000.0

    def between(self, first: torch.cuda.Event, second: torch.cuda.Event) -> float:
        """Return the seconds between two events, to 0.5 µs (cudaEventElapsedTime)."""
        second.synchronize()
        return float(first.elapsed_time(second)) / 1000.0


def clock_of(device: str) -> Clock:
    """Return the clock for tensors on this device."""
    return Clock() if device == "cpu" else DeviceClock()
