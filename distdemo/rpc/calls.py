"""RPC calls of every kind by worker 0, and the functions that they call on other workers.

Importing this module loads torch's compiler: see ``rank.load_rpc``.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch._C._distributed_rpc import PyRRef
from torch.distributed import autograd, rpc
from torch.distributed.optim import DistributedOptimizer

from distdemo.rpc.records import RAISED, RpcCall, worker

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

T = TypeVar("T")
FACTORS = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
LEARNING_RATE = 0.5
"""Learning rate. With these numbers every result is exact on any processor."""


# ----------------------------------------------------------------- called by name on other workers


def who() -> str:
    """Return the name of the worker that runs this."""
    return str(rpc.get_worker_info().name)


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
    return reference.to_here()


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
        gradients: dict[Tensor, Tensor] = autograd.get_gradients(context)  # type: ignore[attr-defined]  # missing in torch's stubs
        return gradients[self.numbers]

    def value(self) -> Tensor:
        """Return a copy of the numbers."""
        return self.numbers.detach().clone()


# ----------------------------------------------------------------------------- called on worker 0


class CallRecorder:
    """Recorder of this worker's calls, which also sends each to the launcher before it is made."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self.calls: list[RpcCall] = []

    def call(
        self,
        callees: tuple[int, ...],
        name: str,
        what: str,
        expected: str,
        function: Callable[..., T],
        *args: Any,
    ) -> T:
        """Make a blocking call and return its result.

        Args:
            callees: Ranks of the workers that run it.
            name: torch's function, such as ``rpc_sync``.
            what: Called function with its arguments, such as ``add(3)``.
            expected: Expected value as text; empty if there is none.
            function: Function that makes the call.
            args: Its arguments.
        """
        call = RpcCall(callees, name, what, "", expected, 0.0)
        self._rank.report_phase(f"{call.callee}: {call.text}")
        self._rank.send(call)  # if it never returns, its callees are at fault
        start = time.monotonic()
        result = function(*args)
        time_s = time.monotonic() - start
        value = ""
        if isinstance(result, Tensor):
            value = shown(result)
        elif isinstance(result, PyRRef):
            value = f"RRef to {result.owner_name()}"
        elif result is not None:
            value = str(result)
        self.calls.append(replace(call, value=value, time_s=time_s))
        return result


def shown(tensor: Tensor) -> str:
    """Return all digits of the numbers, ``[1 2 3.5]``."""
    return f"[{' '.join(repr(number).removesuffix('.0') for number in tensor.tolist())}]"


def make_calls(recorder: CallRecorder, world_size: int) -> None:
    """Make calls by rpc_sync, rpc_async, remote and RRefs; one of them raises an exception."""
    call = recorder.call
    first = worker(1)
    to_first = f"RRef to {first}"
    numbers = torch.tensor([1.0, 2.0, 3.0])
    doubled = "[2 4 6]"
    # A function of torch: send a tensor, receive the result.
    what = "add([1 2 3], 10)"
    call((1,), "rpc_sync", what, "[11 12 13]", rpc.rpc_sync, first, torch.add, (numbers, 10))
    # Calls to all workers at the same time.
    futures = {rank: rpc.rpc_async(worker(rank), who) for rank in range(1, world_size)}
    for rank, future in futures.items():
        call((rank,), "rpc_async", "who()", worker(rank), future.wait)
    # An object created on another worker stays there; a reference is returned immediately.
    counter = call((1,), "remote", "Counter(5)", to_first, rpc.remote, first, Counter, (5,))
    for number, total in ((3, "8"), (-2, "6")):
        call((1,), "rref.rpc_sync", f"add({number})", total, counter.rpc_sync().add, number)
    what = "mul([1 2 3], 2)"
    product = call((1,), "remote", what, to_first, rpc.remote, first, torch.mul, (numbers, 2))
    call((1,), "rref.to_here", "", doubled, product.to_here)
    if world_size > 2:  # a reference can be passed on
        third = worker(2)
        call((2,), "rpc_sync", "fetch(RRef)", doubled, rpc.rpc_sync, third, fetch, (product,))

    def raised() -> str:
        """Return the exception of a remote call, which is raised here with its own type."""
        try:
            result = rpc.rpc_sync(first, root, (-9,))
        except ValueError as error:
            named = re.search(RAISED, str(error))
            return named[2] if named and int(named[1]) == 1 else str(error)
        return f"no exception, but {result}"

    call((1,), "rpc_sync", "root(-9)", "ValueError('< 0')", raised)


def take_step(recorder: CallRecorder, world_size: int) -> None:
    """Take one step of SGD by distributed autograd on factors owned by other workers.

    The same step by ordinary autograd in this process gives the expected values.
    """
    call = recorder.call
    owners = (1, min(2, world_size - 1))
    all_owners = tuple(dict.fromkeys(owners))
    local = [torch.tensor(numbers, requires_grad=True) for numbers in FACTORS]
    factors = []
    for owner, factor in zip(owners, local, strict=True):
        name = worker(owner)
        what = f"Factor({shown(factor)})"
        args = (factor.tolist(),)
        factors.append(
            call((owner,), "remote", what, f"RRef to {name}", rpc.remote, name, Factor, args)
        )
    triples = list(zip(owners, factors, local, strict=True))
    optimizer = DistributedOptimizer(  # type: ignore[no-untyped-call]  # untyped in torch
        torch.optim.SGD,
        [factor.rpc_sync().reference() for factor in factors],
        lr=LEARNING_RATE,
    )
    method = "rref.rpc_sync"
    with autograd.context() as context:
        product = expected = torch.tensor([1.0, 2.0, 3.0])
        for owner, factor, here in triples:
            expected = expected * here
            what = f"times({shown(product)})"
            times = factor.rpc_sync().times
            product = call((owner,), method, what, shown(expected), times, product)
        expected.sum().backward()  # type: ignore[no-untyped-call]  # untyped in torch
        backward = autograd.backward  # type: ignore[attr-defined]  # missing in torch's stubs
        call(all_owners, "backward", "(sum)", "", backward, context, [product.sum()])
        for owner, factor, here in triples:
            assert here.grad is not None  # backward has just set it
            expected_text = shown(here.grad)
            gradient = factor.rpc_sync().gradient
            call((owner,), method, "gradient()", expected_text, gradient, context)
        call(all_owners, "optimizer.step", "", "", optimizer.step, context)
    torch.optim.SGD(local, lr=LEARNING_RATE).step()
    for owner, factor, here in triples:
        call((owner,), method, "value()", shown(here), factor.rpc_sync().value)
