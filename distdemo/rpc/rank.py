"""What every worker runs: it answers calls; worker 0 makes them, and trains a model over them."""

from __future__ import annotations

import re
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from distdemo.errors import UsageError
from distdemo.launcher.torch_import import load_compiler, load_torch


def load_rpc() -> None:
    """Import torch's modules for RPC, quietly and once: before ranks are forked, or in a rank.

    Raises:
        UsageError: torch is missing, or was built without RPC.
    """
    load_torch()
    from torch.distributed import rpc

    if not (rpc.is_available() and hasattr(rpc, "TensorPipeRpcBackendOptions")):
        raise UsageError(
            "distdemo rpc can't be run here.",
            "This torch was built without torch.distributed.rpc, or without TensorPipe under it.",
            "Take a torch wheel for Linux; on Windows RPC does not exist.",
        )
    load_compiler(
        ("torch.distributed.rpc", "torch.distributed.autograd", "torch.distributed.optim"),
    )


load_rpc()  # what is imported next warns of itself

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed import autograd, rpc  # noqa: E402
from torch.distributed.optim import DistributedOptimizer  # noqa: E402
from torch.distributed.rendezvous import register_rendezvous_handler  # noqa: E402
from torch.distributed.rpc import internal  # noqa: E402
from torch.nn.functional import mse_loss  # noqa: E402

from distdemo.rpc import remote  # noqa: E402
from distdemo.rpc.records import Call, Parameter, RpcSpec, Training, Value, worker  # noqa: E402
from distdemo.rpc.remote import PARTS, Part  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor
    from torch._C._distributed_c10d import Store
    from torch._C._distributed_rpc import PyRRef
    from torch.futures import Future

    from distdemo.launcher.rank import Rank

    Reference = PyRRef[Any]

T = TypeVar("T")
Weights = dict[str, torch.Tensor]
SAY = 1000  # steps in one process between two signs of life
# How torch begins the text of an exception that was raised on another worker (2.8 to 2.15).
RAISED = re.compile(r"On WorkerInfo\(id=(?P<rank>\d+), name=(?P<name>[\w:-]+)\):\n(?P<error>.+)")
XOR = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
"""What the model learns, exclusive or: 1 where the two differ, else -1. It takes a hidden layer."""
TARGETS = -XOR.prod(dim=1, keepdim=True)


def run(rank: Rank, spec: RpcSpec, limit: float) -> tuple[tuple[Call, ...], Training] | None:
    """Collective: be a worker; rank 0 makes all the calls and brings back what came of them.

    Args:
        rank: this process's.
        spec: what to run.
        limit: seconds that a call may take. The launcher judges earlier; this is a second net.
    """
    _keep_torch_quiet()
    with suppress(OSError, ValueError):  # TensorPipe takes some 60 files for each other worker
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def meet(_url: str, **_: Any) -> Iterator[tuple[Store, int, int]]:  # noqa: ANN401 - torch's own
        yield rank.store("rpc"), rank.rank, rank.world_size  # so that no port is opened for it

    register_rendezvous_handler("distdemo", meet)  # type: ignore[no-untyped-call]  # torch does not say its type
    options = rpc.TensorPipeRpcBackendOptions(init_method="distdemo://", rpc_timeout=limit)
    rpc.init_rpc(  # type: ignore[no-untyped-call]  # likewise
        worker(rank.rank),
        rank=rank.rank,
        world_size=rank.world_size,
        rpc_backend_options=options,
    )
    rank.reach("connected")
    found = None
    if rank.rank == 0:
        timeline = Timeline(rank)
        make_calls(timeline, rank.world_size)
        training = train(rank, timeline, spec)
        found = tuple(sorted(timeline.calls, key=lambda call: call.start_s)), training
        rank.reach("done")
    rpc.shutdown()  # the others answer until all are here; after an exception nobody comes
    return found


# -------------------------------------------------------------------------------------- the calls


class Timeline:
    """The calls of this worker, noted one by one."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._began = time.monotonic()
        self.calls: list[Call] = []

    def call(
        self,
        callee: str,
        what: str,
        expected: Value,
        make: Callable[[], T],
        tell: Callable[[T], Value] | None = None,
    ) -> T:
        """Make a call that waits for its result, and return that.

        Args:
            callee: the worker, or several.
            what: torch's function and what it calls, ``rpc_sync add(3)``.
            expected: what has to come back.
            make: the call itself.
            tell: what the timeline says of the result; left out: the result itself.
        """
        self._rank.reach(f"{callee}: {what}")  # whose answer is awaited, should there be none
        start = time.monotonic()
        result = make()
        self._note(callee, what, expected, start, (tell or _plain)(result))
        return result

    def at_once(self, calls: Sequence[tuple[str, str, Value, Callable[[], Future[Any]]]]) -> None:
        """Begin all of these calls, and only then wait for them, in the same order."""
        begun = [(*call, time.monotonic(), call[3]()) for call in calls]
        for callee, what, expected, _, start, future in begun:
            self._rank.reach(f"{callee}: {what}")
            self._note(callee, what, expected, start, _plain(future.wait()))

    def _note(self, callee: str, what: str, expected: Value, start: float, value: Value) -> None:
        function, _, called = what.partition(" ")
        lasted = time.monotonic() - start
        self.calls.append(
            Call(callee, function, called, value, expected, start - self._began, lasted)
        )


def _plain(result: Any) -> Value:  # noqa: ANN401 - whatever came back
    if isinstance(result, torch.Tensor):
        return tuple(result.detach().flatten().tolist())
    return result if isinstance(result, bool | int | float | str) else repr(result)


def _owned(reference: Reference) -> str:
    return (
        "RRef to this worker itself"
        if reference.is_owner()
        else f"RRef to {reference.owner_name()}"
    )


def make_calls(timeline: Timeline, world_size: int) -> None:
    """The four ways to call: rpc_sync, rpc_async, remote with RRefs; and an exception back."""
    call, first = timeline.call, worker(1)
    numbers = torch.tensor([1.0, 2.0, 3.0])
    # A function of torch's own: a tensor goes there, the result comes back.
    add = partial(rpc.rpc_sync, first, torch.add, (numbers, 10))
    call(first, "rpc_sync add([1 2 3], 10)", (11.0, 12.0, 13.0), add)
    # Several calls under way at once: one to each worker, then two that wait for each other.
    others = [worker(rank) for rank in range(1, world_size)]
    timeline.at_once(
        [
            (each, "rpc_async who()", each, partial(rpc.rpc_async, each, remote.who))
            for each in others
        ]
    )
    timeline.at_once(
        [
            (
                first,
                f"rpc_async swap('{mine}')",
                other,
                partial(rpc.rpc_async, first, remote.swap, (mine,)),
            )
            for mine, other in (("ping", "pong"), ("pong", "ping"))
        ]
    )
    # An object made on another worker stays there; a reference to it comes back at once.
    there = f"RRef to {first}"
    make = partial(rpc.remote, first, remote.Counter, (5,))
    counter = call(first, "remote Counter(5)", there, make, _owned)
    for number, total in ((3, 8), (-2, 6)):
        add_to = partial(lambda number: counter.rpc_sync().add(number), number)
        call(first, f"rref.rpc_sync add({number})", total, add_to)
    make = partial(rpc.remote, first, torch.mul, (numbers, 2))
    product = call(first, "remote mul([1 2 3], 2)", there, make, _owned)
    doubled = (2.0, 4.0, 6.0)
    call(first, "rref.to_here", doubled, product.to_here)
    if world_size > 2:  # a reference may be handed on
        third = worker(2)
        fetch = partial(rpc.rpc_sync, third, remote.fetch, (product,))
        call(third, "rpc_sync fetch(RRef)", doubled, fetch)

    def caught() -> str:
        """What is raised there is raised here, with its own type."""
        try:
            result = rpc.rpc_sync(first, remote.root, (-9,))
        except ValueError as error:
            found = RAISED.search(str(error))
            there = found is not None and found["name"] == first
            return found["error"] if found and there else f"ValueError of another: {error}"
        return f"no exception, but {result}"

    call(first, "rpc_sync root(-9)", "ValueError('< 0')", caught)


# ------------------------------------------------------------------------------------ the training


def train(rank: Rank, timeline: Timeline, spec: RpcSpec) -> Training:
    """Train a model whose parts live on other workers, and the same in this process."""
    owners = worker(1), worker(min(2, rank.world_size - 1))
    parts = {
        name: timeline.call(
            owner,
            f"remote Part('{name}')",
            f"RRef to {owner}",
            partial(rpc.remote, owner, Part, (name, spec.seed)),
            _owned,
        )
        for owner, name in zip(owners, PARTS, strict=True)
    }
    began = time.monotonic()
    losses = _train_remotely(rank, timeline, spec, owners, parts)
    lasted = time.monotonic() - began
    weights: Weights = {}
    owner_of: dict[str, str] = {}
    for owner, (name, part) in zip(owners, parts.items(), strict=True):
        pulled = timeline.call(
            owner,
            f"rref.rpc_sync {name}.pulled()",
            "2 tensors",
            part.rpc_sync().pulled,
            lambda tensors: f"{len(tensors)} tensors",
        )
        weights |= {f"{name}.{key}": tensor for key, tensor in pulled.items()}
        owner_of |= {f"{name}.{key}": owner for key in pulled}
    began = time.monotonic()
    local_losses, local = _train_here(rank, spec)
    return Training(
        losses,
        local_losses,
        tuple(
            Parameter(
                name, owner_of[name], tuple(each.shape), _numbers(each), _numbers(local[name])
            )
            for name, each in weights.items()
        ),
        lasted,
        time.monotonic() - began,
    )


def _train_remotely(
    rank: Rank,
    timeline: Timeline,
    spec: RpcSpec,
    owners: Sequence[str],
    parts: dict[str, Reference],
) -> tuple[float, ...]:
    """By distributed autograd, from here; the losses. The first step is in the timeline."""

    def call(shown: bool, *what: Any) -> Any:  # noqa: ANN401 - what ``Timeline.call`` takes
        return timeline.call(*what) if shown else what[3]()

    def output(*, shown: bool) -> Tensor:
        values = XOR
        for owner, (name, part) in zip(owners, parts.items(), strict=True):
            shape = f"float32[{len(XOR)}, {PARTS[name][1]}]"
            forward = partial(lambda part, values: part.rpc_sync().forward(values), part, values)
            values = call(shown, owner, f"rref.rpc_sync {name}.forward()", shape, forward, _shape)
        return values

    references = [each for part in parts.values() for each in part.rpc_sync().references()]
    optimizer = DistributedOptimizer(  # type: ignore[no-untyped-call]  # torch does not say its type
        torch.optim.SGD, references, lr=spec.learning_rate
    )
    everybody = ", ".join(dict.fromkeys(owners))
    losses = []
    for step in range(spec.steps):
        rank.reach(f"training step {step + 1} of {spec.steps}")
        shown = step == 0
        with autograd.context() as context:
            loss = mse_loss(output(shown=shown), TARGETS)
            backward = partial(autograd.backward, context, [loss])  # type: ignore[attr-defined]  # torch exports it so

            def gradients(_: object, context: int = context) -> str:
                counts = (part.rpc_sync().gradients(context) for part in parts.values())
                return f"{sum(counts)} gradients"

            # The gradients go to where the parameters are, and each owner takes its step.
            call(shown, everybody, "backward (loss)", "4 gradients", backward, gradients)
            advance = partial(optimizer.step, context)
            call(shown, everybody, "optimizer.step", "", advance, lambda _: "")
        losses.append(loss.item())
    with torch.no_grad():
        losses.append(mse_loss(output(shown=False), TARGETS).item())
    return tuple(losses)


def _train_here(rank: Rank, spec: RpcSpec) -> tuple[tuple[float, ...], Weights]:
    """The same with torch's ordinary autograd and SGD, without RPC: what it should come to."""
    parts = {name: Part(name, spec.seed) for name in PARTS}
    model = nn.Sequential(*parts.values())
    optimizer = torch.optim.SGD(model.parameters(), lr=spec.learning_rate)
    losses = []
    for step in range(spec.steps):
        if step % SAY == 0:
            rank.reach("training in one process")
        optimizer.zero_grad()
        loss = mse_loss(model(XOR), TARGETS)
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not say its type
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        losses.append(mse_loss(model(XOR), TARGETS).item())
    pulled = {
        f"{name}.{key}": each for name, part in parts.items() for key, each in part.pulled().items()
    }
    return tuple(losses), pulled


def _shape(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _numbers(tensor: Tensor) -> tuple[float, ...]:
    return tuple(tensor.flatten().tolist())


# -------------------------------------------------------------------------------------- quietness


def _keep_torch_quiet() -> None:
    """Keep what torch says of its own insides out of what this rank writes.

    One of its warnings switches every filter off before it speaks, hence the second way. And it
    prints each exception that crosses back, on the callee too, where nobody asked for it.
    """
    internal.print = lambda *_, **__: None  # type: ignore[attr-defined]  # in place of the builtin, there alone
    warnings.filterwarnings("ignore", module=r"torch\.")
    tell = warnings.showwarning

    def show(  # noqa: PLR0917 - the form that Python prescribes
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if "/torch/" not in filename:
            tell(message, category, filename, lineno, file or sys.stderr, line)

    warnings.showwarning = show
