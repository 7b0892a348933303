"""Functions and classes called by other workers. RPC sends only names and arguments."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed import autograd, rpc

if TYPE_CHECKING:
    from torch._C._distributed_rpc import PyRRef

SWAP_TIMEOUT_S = 60.0  # that one side of a swap waits for the other

_swap_barrier = threading.Barrier(2)
_swapped: dict[str, str] = {}


def who() -> str:
    """Return the name of the worker that runs this."""
    return str(rpc.get_worker_info().name)


def swap(mine: str) -> str:
    """Return the argument of the other one of two concurrent calls.

    Each call waits for the other one, so neither returns unless both run at the same time.
    """
    _swap_barrier.wait(SWAP_TIMEOUT_S)  # the first caller waits here
    _swapped[mine] = mine
    _swap_barrier.wait(SWAP_TIMEOUT_S)
    return next(each for each in _swapped if each != mine)


def root(number: float) -> float:
    """Return the square root.

    Raises:
        ValueError: The number is negative.
    """
    if number < 0:
        raise ValueError("< 0")
    return math.sqrt(number)


def fetch(reference: PyRRef[Tensor]) -> Tensor:
    """Return the value of a reference, fetched from its owner."""
    value: Tensor = reference.to_here()
    return value


class Counter:
    """Object with state, owned by the worker that created it."""

    def __init__(self, start: int) -> None:
        self.count = start

    def add(self, number: int) -> int:
        """Add a number and return the sum so far."""
        self.count += number
        return self.count


class Factor:
    """Factor of the product, updated by an optimizer on another worker."""

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
        found: Tensor = autograd.get_gradients(context)[self.numbers]  # type: ignore[attr-defined]  # missing in torch's stubs
        return found

    def value(self) -> Tensor:
        """Return a copy of the numbers."""
        return self.numbers.detach().clone()
