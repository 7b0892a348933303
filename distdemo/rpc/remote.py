"""What other workers call. Every worker has this module; only names and arguments travel."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed import autograd, rpc

if TYPE_CHECKING:
    from torch._C._distributed_rpc import PyRRef

SWAP_LIMIT = 60.0  # seconds that one half of a swap waits for the other

_meeting = threading.Barrier(2)
_brought: dict[str, str] = {}


def who() -> str:
    """The name of the worker that carries this out."""
    return str(rpc.get_worker_info().name)


def swap(mine: str) -> str:
    """Give something, and get what the other of two calls gave.

    Each waits for the other, so neither returns unless both are under way at once.
    """
    _meeting.wait(SWAP_LIMIT)  # the first one waits
    _brought[mine] = mine
    _meeting.wait(SWAP_LIMIT)
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


class Factor:
    """Numbers to multiply with, which an optimizer on another worker changes."""

    def __init__(self, numbers: list[float]) -> None:
        self.numbers = torch.tensor(numbers, requires_grad=True)

    def times(self, values: Tensor) -> Tensor:
        """Return the product, whose graph spans both workers."""
        return self.numbers * values

    def reference(self) -> rpc.RRef[Tensor]:
        """Return a reference to the numbers, which stay on this worker."""
        return rpc.RRef(self.numbers)

    def gradient(self, context: int) -> Tensor:
        """Return the gradient of the numbers in this context."""
        found: Tensor = autograd.get_gradients(context)[self.numbers]  # type: ignore[attr-defined]  # torch exports it so
        return found

    def value(self) -> Tensor:
        """Return a copy of the numbers."""
        return self.numbers.detach().clone()
