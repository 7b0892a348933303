"""The same batches on one process, and for how many epochs another run can be compared with that.

Two right programs add up the same gradients in another order, and so round differently. Training
may make that difference larger in every step; with a large learning rate it soon is as large as the
weights, and says nothing any more. How fast it grows is measured here: beside the reference runs
its shadow, whose first weights are off by a few units of their last place. As long as the shadow is
within ``DRIFT`` of the reference, others have to be within ``TOLERANCE`` of it, a thousand times as
much. Past that, or once the loss is none that a training has, nothing is compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from distdemo.train.loop import Training
from distdemo.train.proofs import LARGEST_LOSS, relative

DRIFT = 1e-9
NUDGE = 1e-15  # of a weight: four to eight units of its last place


@dataclass(slots=True)
class Reference:
    """The reference under way.

    Args:
        training: the reference itself.
        shadow: the same from first weights that have been nudged.

    Attributes:
        comparable: epochs after which both were still close; all others come after these.
        weights: of the reference after the last of these.
        moved: how far a weight had gone by then, at most.
    """

    training: Training
    shadow: Training
    first: torch.Tensor
    weights: torch.Tensor
    comparable: int = 0
    moved: float = 0.0

    @classmethod
    def of(cls, training: Training, shadow: Training) -> Reference:
        """Of two trainings that have not begun, with the same weights."""
        nudge(shadow.averaging.module)
        first = weights_of(training.averaging.module)
        return cls(training, shadow, first, first)

    def follow(self) -> None:
        """After each epoch of the reference: let the shadow come along, if it was close so far."""
        epochs = self.training.epochs
        if self.comparable != len(epochs) - 1:
            return
        loss = float(self.shadow.learn(self.comparable))
        weights = weights_of(self.training.averaging.module)
        moved = difference(weights, self.first)
        drift = difference(weights, weights_of(self.shadow.averaging.module))
        # NaN is close to nothing
        alike = drift <= DRIFT * moved and relative(loss, epochs[-1].loss) <= DRIFT
        if alike and epochs[-1].loss <= LARGEST_LOSS:
            self.comparable, self.weights, self.moved = len(epochs), weights, moved


def nudge(model: nn.Module) -> None:
    """Move every weight by a few units of its last place, up or down."""
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            signs = torch.randint(2, parameter.shape, generator=source).mul_(2).sub_(1)
            parameter.mul_(1 + NUDGE * signs.to(parameter))


def weights_of(model: nn.Module) -> torch.Tensor:
    """A copy of all of a model's weights, one after the other."""
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()])


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest one of two elements; NaN if any is."""
    return float((a - b).abs().max())
