"""What worker 0 does over RPC: calls of every kind, then the training of a model.

Importing this loads torch's compiler: see ``rank.load_rpc``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn
from torch._C._distributed_rpc import PyRRef
from torch.distributed import autograd, rpc
from torch.distributed.optim import DistributedOptimizer
from torch.nn.functional import mse_loss

from distdemo.rpc import remote
from distdemo.rpc.records import RAISED, Parameter, RpcCall, RpcSpec, Trainings, Value, worker
from distdemo.rpc.remote import LAYERS, Layer

if TYPE_CHECKING:
    from torch import Tensor
    from torch.futures import Future

    from distdemo.launcher.rank import Rank

T = TypeVar("T")
REPORTED = 1000  # steps in one process between two signs of progress
XOR = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
"""What the model learns, exclusive or: 1 where the two differ, else -1. It takes a hidden layer."""
TARGETS = -XOR.prod(dim=1, keepdim=True)


class Timeline:
    """The calls of this worker, recorded one by one.

    Attributes:
        records: whether calls are recorded now.
    """

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._began = time.monotonic()
        self.calls: list[RpcCall] = []
        self.records = True

    def call(self, callee: str, what: str, expected: Value, make: Callable[[], T]) -> T:
        """Make a call that waits for its result, and return that.

        Args:
            callee: the worker, or several.
            what: torch's function and what it calls, ``rpc_sync add(3)``.
            expected: what has to come back.
            make: the call itself.
        """
        if not self.records:
            return make()
        self._rank.reach(f"{callee}: {what}")  # whose answer is awaited, should there be none
        start = time.monotonic()
        result = make()
        self._record(callee, what, expected, start, result)
        return result

    def at_once(self, calls: Sequence[tuple[str, str, Value, Callable[[], Future[Any]]]]) -> None:
        """Begin all of these calls, and only then wait for them, in the same order."""
        begun = [(*call, time.monotonic(), call[3]()) for call in calls]
        for callee, what, expected, _, start, future in begun:
            self._rank.reach(f"{callee}: {what}")
            self._record(callee, what, expected, start, future.wait())

    def _record(self, callee: str, what: str, expected: Value, start: float, result: Any) -> None:  # noqa: ANN401 - whatever came back
        took = time.monotonic() - start
        function, _, called = what.partition(" ")
        found = _described(result), expected, start - self._began, took
        self.calls.append(RpcCall(callee, function, called, *found))


def _described(result: Any) -> Value:  # noqa: ANN401 - whatever came back
    """Numbers of a tensor with one dimension, the shape of others, the owner of a reference."""
    if isinstance(result, torch.Tensor):
        shape = f"{str(result.dtype).removeprefix('torch.')}{list(result.shape)}"
        return _numbers(result) if result.dim() == 1 else shape
    if isinstance(result, PyRRef):
        return f"RRef to {'this worker itself' if result.is_owner() else result.owner_name()}"
    if isinstance(result, dict):
        return f"{len(result)} tensors"
    return result if isinstance(result, bool | int | float | str) else ""


def _numbers(tensor: Tensor) -> tuple[float, ...]:
    return tuple(tensor.detach().flatten().tolist())


def make_calls(timeline: Timeline, world_size: int) -> None:
    """The four ways to call: rpc_sync, rpc_async, remote with RRefs; and an exception back."""
    call, first = timeline.call, worker(1)
    there, doubled = f"RRef to {first}", (2.0, 4.0, 6.0)
    numbers = torch.tensor([1.0, 2.0, 3.0])
    # A function of torch's own: a tensor goes there, the result comes back.
    add = partial(rpc.rpc_sync, first, torch.add, (numbers, 10))
    call(first, "rpc_sync add([1 2 3], 10)", (11.0, 12.0, 13.0), add)
    # Several calls under way at once: one to each worker, then two that wait for each other.
    timeline.at_once(
        [
            (each, "rpc_async who()", each, partial(rpc.rpc_async, each, remote.who))
            for each in map(worker, range(1, world_size))
        ]
    )
    swap = partial(rpc.rpc_async, first, remote.swap)
    timeline.at_once(
        [
            (first, f"rpc_async swap('{mine}')", other, partial(swap, (mine,)))
            for mine, other in (("ping", "pong"), ("pong", "ping"))
        ]
    )
    # An object made on another worker stays there; a reference to it comes back at once.
    make = partial(rpc.remote, first, remote.Counter, (5,))
    counter = call(first, "remote Counter(5)", there, make)
    for number, total in ((3, 8), (-2, 6)):
        add_to = partial(lambda number: counter.rpc_sync().add(number), number)
        call(first, f"rref.rpc_sync add({number})", total, add_to)
    make = partial(rpc.remote, first, torch.mul, (numbers, 2))
    product = call(first, "remote mul([1 2 3], 2)", there, make)
    call(first, "rref.to_here", doubled, product.to_here)
    if world_size > 2:  # a reference may be handed on
        fetch = partial(rpc.rpc_sync, worker(2), remote.fetch, (product,))
        call(worker(2), "rpc_sync fetch(RRef)", doubled, fetch)

    def raised() -> str:
        """What is raised there is raised here, with its own type."""
        try:
            result = rpc.rpc_sync(first, remote.root, (-9,))
        except ValueError as error:
            found = re.search(RAISED, str(error))
            return found[2] if found and worker(int(found[1])) == first else str(error)
        return f"no exception, but {result}"

    call(first, "rpc_sync root(-9)", "ValueError('< 0')", raised)


# ------------------------------------------------------------------------------------ the training


def train(rank: Rank, timeline: Timeline, spec: RpcSpec) -> Trainings:
    """Train a model whose layers live on other workers, and the same in this process."""
    owners = {"hidden": worker(1), "output": worker(min(2, rank.world_size - 1))}
    layers = {
        name: timeline.call(
            owner,
            f"remote Layer('{name}')",
            f"RRef to {owner}",
            partial(rpc.remote, owner, Layer, (name, spec.seed)),
        )
        for name, owner in owners.items()
    }
    began = time.monotonic()
    losses = _train_remotely(rank, timeline, spec, owners, layers)
    remote_s = time.monotonic() - began
    pulled = {
        name: timeline.call(
            owner,
            f"rref.rpc_sync {name}.pulled()",
            "2 tensors",
            layers[name].rpc_sync().pulled,
        )
        for name, owner in owners.items()
    }
    here = {name: Layer(name, spec.seed) for name in LAYERS}
    began = time.monotonic()
    local_losses = _train_here(rank, spec, nn.Sequential(*here.values()))
    local_s = time.monotonic() - began
    parameters = [
        Parameter(
            f"{name}.{key}",
            owners[name],
            tuple(each.shape),
            _numbers(each),
            _numbers(here[name].pulled()[key]),
        )
        for name, tensors in pulled.items()
        for key, each in tensors.items()
    ]
    return Trainings(losses, local_losses, tuple(parameters), remote_s, local_s)


def _train_remotely(
    rank: Rank,
    timeline: Timeline,
    spec: RpcSpec,
    owners: dict[str, str],
    layers: dict[str, PyRRef[Any]],
) -> tuple[float, ...]:
    """By distributed autograd, from here; the losses. The first step is in the timeline."""

    def output() -> Tensor:
        values = XOR
        for name, layer in layers.items():
            shape = f"float32[{len(XOR)}, {LAYERS[name][1]}]"
            forward = partial(lambda layer, values: layer.rpc_sync().forward(values), layer, values)
            what = f"rref.rpc_sync {name}.forward()"
            values = timeline.call(owners[name], what, shape, forward)
        return values

    references = [each for layer in layers.values() for each in layer.rpc_sync().references()]
    optimizer = DistributedOptimizer(  # type: ignore[no-untyped-call]  # torch does not say its type
        torch.optim.SGD, references, lr=spec.learning_rate
    )
    everybody = ", ".join(dict.fromkeys(owners.values()))
    losses = []
    for step in range(spec.steps):
        timeline.records = step == 0
        rank.reach(f"training step {step + 1} of {spec.steps}")
        with autograd.context() as context:
            loss = mse_loss(output(), TARGETS)
            backward = partial(autograd.backward, context, [loss])  # type: ignore[attr-defined]  # torch exports it so
            timeline.call(everybody, "backward (loss)", "", backward)
            if timeline.records:  # the gradients went to where the parameters are
                for name, layer in layers.items():
                    count = partial(layer.rpc_sync().grads, context)
                    timeline.call(owners[name], f"rref.rpc_sync {name}.grads()", 2, count)
            # Each owner takes its step.
            timeline.call(everybody, "optimizer.step", "", partial(optimizer.step, context))
        losses.append(loss.item())
    timeline.records = False
    with torch.no_grad():
        losses.append(mse_loss(output(), TARGETS).item())
    timeline.records = True
    return tuple(losses)


def _train_here(rank: Rank, spec: RpcSpec, model: nn.Module) -> tuple[float, ...]:
    """The same with torch's ordinary autograd and SGD, without RPC: what it should come to."""
    optimizer = torch.optim.SGD(model.parameters(), lr=spec.learning_rate)
    losses = []
    for step in range(spec.steps):
        if step % REPORTED == 0:
            rank.reach("training in one process")
        optimizer.zero_grad()
        loss = mse_loss(model(XOR), TARGETS)
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not say its type
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        losses.append(mse_loss(model(XOR), TARGETS).item())
    return tuple(losses)
