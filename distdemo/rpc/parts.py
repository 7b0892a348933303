"""The model in two parts, and what it learns: exclusive or, which takes a hidden layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed import autograd, rpc

PARTS = {"hidden": (2, 8), "output": (8, 1)}
"""How many numbers go into each part and come out, in the order in which data goes through."""
PARAMETERS = 2  # of a part: weight and bias


class Part(nn.Module):
    """One layer, with first weights that depend on the seed alone.

    Args:
        name: of ``PARTS``.
        seed: of the whole model.
    """

    def __init__(self, name: str, seed: int) -> None:
        super().__init__()
        dice = torch.Generator().manual_seed(seed + list(PARTS).index(name))
        self.layer = nn.Linear(*PARTS[name])
        self._bends = name == "hidden"
        with torch.no_grad():
            for parameter in self.layer.parameters():
                parameter.uniform_(-1.0, 1.0, generator=dice)

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

    def gradients(self, context: int) -> int:
        """How many of the parameters here have a gradient in this context."""
        found = autograd.get_gradients(context)  # type: ignore[attr-defined]  # torch exports it so
        return sum(parameter in found for parameter in self.parameters())


def task() -> tuple[Tensor, Tensor]:
    """The four inputs and what should come out: 1 where the two differ, else −1."""
    inputs = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    return inputs, -inputs.prod(dim=1, keepdim=True)
