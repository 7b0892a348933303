"""What is called from afar. Every worker has this module; only names and arguments travel."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from torch.distributed import rpc

if TYPE_CHECKING:
    from torch import Tensor
    from torch._C._distributed_rpc import PyRRef

PATIENCE = 60.0  # seconds that one half of a swap waits for the other

_meeting = threading.Barrier(2)
_brought: dict[str, str] = {}


def who() -> str:
    """The name of the worker that carries this out."""
    return str(rpc.get_worker_info().name)


def swap(mine: str) -> str:
    """Give something, and get what the other of two calls gave.

    Each waits for the other, so neither returns unless both are under way at once.
    """
    _meeting.wait(PATIENCE)  # whoever comes first waits
    _brought[mine] = mine
    _meeting.wait(PATIENCE)
    return next(each for each in _brought if each != mine)


def root(number: float) -> float:
    """A square root.

    Raises:
        ValueError: the number has none.
    """
    if number < 0:
        raise ValueError("< 0")
    return math.sqrt(number)


def fetch(reference: PyRRef[Tensor]) -> Tensor:
    """The value that a reference leads to, wherever it lives."""
    value: Tensor = reference.to_here()
    return value


class Counter:
    """Something with a state, which lives on the worker that it was made on."""

    def __init__(self, start: int) -> None:
        self.count = start

    def add(self, number: int) -> int:
        """Add a number; the sum so far."""
        self.count += number
        return self.count
