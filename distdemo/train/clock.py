"""What tells when something happened on this rank, in seconds of the host's monotonic clock.

All processes of a machine share that clock. What a GPU does is timed by the GPU: an event is put
on the current stream, which the GPU stamps when it gets there. What its stamps are on the host's
clock is found anew in every epoch, as the two may drift apart.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """Marks moments."""

    def begin(self) -> None:
        """Wait for the device; marks made before this can't be read any more."""

    def mark(self) -> Any:  # noqa: ANN401 - what a clock makes, it alone reads
        """This moment, or that in which the device gets here."""

    def settle(self) -> None:
        """Wait until the device has passed all marks."""

    def read(self, mark: Any) -> float:  # noqa: ANN401 - its own
        """When that was, once settled."""


class HostClock:
    """The host's, for what is done when its call returns."""

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
    """A GPU's own."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Wait for the device, and take note of what both clocks say."""
        torch.cuda.synchronize()
        self._first = self.mark()
        self._first.synchronize()
        self._at = time.monotonic()

    def mark(self) -> torch.cuda.Event:
        """An event on the current stream."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch does not say its type
        event.record()
        return event

    def settle(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize()

    def read(self, mark: torch.cuda.Event) -> float:
        """When the GPU passed it, to some microseconds."""
        return self._at + float(self._first.elapsed_time(mark)) / 1000.0


def clock_of(device: str) -> Clock:
    """The clock for tensors on this device."""
    return HostClock() if device == "cpu" else DeviceClock()
