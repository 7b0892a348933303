"""The model's parts on other workers, trained from here with distributed autograd."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from distdemo.rpc.loading import load_rpc

load_rpc()  # quietly: what is imported next warns of itself

import torch  # noqa: E402
from torch.distributed import autograd, rpc  # noqa: E402
from torch.distributed.optim import DistributedOptimizer  # noqa: E402
from torch.nn.functional import mse_loss  # noqa: E402

from distdemo.rpc.calls import reference  # noqa: E402
from distdemo.rpc.pace import Pace  # noqa: E402
from distdemo.rpc.parts import PARAMETERS, PARTS, Part, task  # noqa: E402
from distdemo.rpc.records import name_of  # noqa: E402
from distdemo.rpc.timeline import Label, Timeline, shape_of  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor
    from torch._C._distributed_rpc import PyRRef

    from distdemo.launcher.rank import Rank
    from distdemo.rpc.records import RpcSpec

    Reference = PyRRef[Any]


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training made.

    Attributes:
        losses: before each step, and after the last one.
        weights: by the parameter's name, ``hidden.weight``.
        owners: of each, by the same names.
    """

    losses: tuple[float, ...]
    weights: dict[str, Tensor]
    owners: dict[str, str]
    seconds: float


def train(rank: Rank, timeline: Timeline, spec: RpcSpec) -> Trained:
    """Train a model that lives on other workers from this one, and pull its weights back.

    What the first step calls is written down in the timeline.
    """
    model = RemoteModel(timeline, rank.world_size, spec.seed)
    optimizer = model.optimizer(spec.learning_rate)
    inputs, targets = task()
    losses = []
    pace = Pace(rank, spec.steps, remote=True)
    began = time.monotonic()
    for step in range(spec.steps):
        rank.reach(f"training step {step + 1} of {spec.steps}")
        with autograd.context() as context:
            forward = model.shown_output if step == 0 else model.output
            loss = mse_loss(forward(inputs), targets)
            _learn(timeline if step == 0 else None, model, optimizer, context, loss)
        losses.append(loss.item())
        pace.done(step + 1)
    with torch.no_grad():
        losses.append(mse_loss(model.output(inputs), targets).item())
    seconds = time.monotonic() - began
    return Trained(tuple(losses), *model.pull(), seconds)


def _learn(
    timeline: Timeline | None,
    model: RemoteModel,
    optimizer: DistributedOptimizer,
    context: int,
    loss: Tensor,
) -> None:
    """Send the gradients back to where the parameters are, and have each owner take its step."""
    if timeline is None:
        _backward(context, loss)
        _step(optimizer, context)
        return
    owners = ", ".join(dict.fromkeys(model.owners))
    timeline.call(
        Label(owners, "backward", "(loss)", f"{PARAMETERS * len(PARTS)} gradients"),
        partial(_backward, context, loss),
        lambda _: f"{model.gradients(context)} gradients",
    )
    timeline.call(
        Label(owners, "optimizer.step", "", ""), partial(_step, optimizer, context), lambda _: ""
    )


def _backward(context: int, loss: Tensor) -> None:
    autograd.backward(context, [loss])  # type: ignore[attr-defined]  # torch exports it so


def _step(optimizer: DistributedOptimizer, context: int) -> None:
    optimizer.step(context)  # type: ignore[no-untyped-call]  # torch does not say its type


def _forward(part: Reference, values: Tensor) -> Tensor:
    output: Tensor = part.rpc_sync().forward(values)
    return output


def _pulled(part: Reference) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = part.rpc_sync().pulled()
    return weights


class RemoteModel:
    """The two parts, as the worker that trains them sees them.

    Attributes:
        owners: where the parts live: on two workers if there are so many.
    """

    def __init__(self, timeline: Timeline, world_size: int, seed: int) -> None:
        self.owners = name_of(1), name_of(min(2, world_size - 1))
        self._timeline = timeline
        self._parts: list[Reference] = [
            timeline.call(
                Label(owner, "remote", f"Part('{name}')", f"RRef to {owner}"),
                partial(rpc.remote, owner, Part, (name, seed)),
                reference,
            )
            for owner, name in zip(self.owners, PARTS, strict=True)
        ]

    def optimizer(self, learning_rate: float) -> DistributedOptimizer:
        """One that takes its steps where the parameters are."""
        references = [each for part in self._parts for each in part.rpc_sync().references()]
        return DistributedOptimizer(  # type: ignore[no-untyped-call]  # torch does not say its type
            torch.optim.SGD, references, lr=learning_rate
        )

    def output(self, values: Tensor) -> Tensor:
        """What the model makes of these inputs; each part computes on its owner."""
        for part in self._parts:
            values = _forward(part, values)
        return values

    def shown_output(self, values: Tensor) -> Tensor:
        """The same, written down call by call."""
        for part, name, owner in zip(self._parts, PARTS, self.owners, strict=True):
            shape = f"float32[{len(values)}, {PARTS[name][1]}]"
            values = self._timeline.call(
                Label(owner, "rref.rpc_sync", f"{name}.forward()", shape),
                partial(_forward, part, values),
                shape_of,
            )
        return values

    def gradients(self, context: int) -> int:
        """How many parameters have a gradient, all owners together."""
        return sum(part.rpc_sync().gradients(context) for part in self._parts)

    def pull(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """A copy of every parameter, and where it lives, by its name."""
        weights: dict[str, Tensor] = {}
        owners: dict[str, str] = {}
        for part, name, owner in zip(self._parts, PARTS, self.owners, strict=True):
            pulled = self._timeline.call(
                Label(owner, "rref.rpc_sync", f"{name}.pulled()", f"{PARAMETERS} tensors"),
                partial(_pulled, part),
                lambda tensors: f"{len(tensors)} tensors",
            )
            weights |= {f"{name}.{key}": tensor for key, tensor in pulled.items()}
            owners |= {f"{name}.{key}": owner for key in pulled}
        return weights, owners
