"""What other workers call. Every worker has this module; only names and arguments travel."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributed import autograd, rpc

if TYPE_CHECKING:
    from torch._C._distributed_rpc import PyRRef

SWAP_LIMIT = 60.0  # seconds that one half of a swap waits for the other
LAYERS = {"hidden": (2, 8), "output": (8, 1)}
"""How many numbers go into each layer of the model and come out, in the order of the data."""

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


class Layer(nn.Module):
    """One layer of the model, with first weights that depend on the seed alone.

    Args:
        name: of ``LAYERS``.
        seed: of the whole model.
    """

    def __init__(self, name: str, seed: int) -> None:
        super().__init__()
        source = torch.Generator().manual_seed(seed + list(LAYERS).index(name))
        self.layer = nn.Linear(*LAYERS[name])
        self._bends = name == "hidden"
        with torch.no_grad():
            for parameter in self.layer.parameters():
                parameter.uniform_(-1.0, 1.0, generator=source)

    def forward(self, values: Tensor) -> Tensor:
        """The layer's output."""
        output: Tensor = self.layer(values)
        return output.tanh() if self._bends else output

    def references(self) -> list[rpc.RRef[nn.Parameter]]:
        """A reference to each parameter, which stays where it is."""
        return [rpc.RRef(parameter) for parameter in self.parameters()]

    def pulled(self) -> dict[str, Tensor]:
        """A copy of each parameter by its name."""
        return {name: each.detach().clone() for name, each in self.layer.named_parameters()}

    def grads(self, context: int) -> int:
        """Number of the parameters here that have a gradient in this context."""
        found = autograd.get_gradients(context)  # type: ignore[attr-defined]  # torch exports it so
        return sum(parameter in found for parameter in self.parameters())
