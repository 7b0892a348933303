"""RPC calls of every kind by worker 0, and one step of distributed autograd.

Importing this module loads torch's compiler: see ``rank.load_rpc``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch._C._distributed_rpc import PyRRef
from torch.distributed import autograd, rpc
from torch.distributed.optim import DistributedOptimizer

from distdemo.rpc import remote
from distdemo.rpc.records import RAISED, RpcCall, Value, worker

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank

T = TypeVar("T")
FACTORS = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
LEARNING_RATE = 0.5
"""Learning rate. With these numbers every result is exact on any processor."""


class CallRecorder:
    """Recorder of this worker's calls."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._began = time.monotonic()
        self.calls: list[RpcCall] = []

    def call(
        self,
        callee: str,
        what: str,
        expected: Value,
        function: Callable[..., T],
        *args: Any,
    ) -> T:
        """Make a blocking call and return its result.

        Args:
            callee: Worker, or workers separated by commas.
            what: torch's function and what it calls, such as ``rpc_sync add(3)``.
            expected: Expected value.
            function: Function that makes the call.
            args: Its arguments.
        """
        self._rank.report_phase(f"{callee}: {what}")  # the callee to report if it never answers
        start = time.monotonic()
        result = function(*args)
        self._record(callee, what, expected, start, result)
        return result

    def call_concurrently(self, *calls: tuple[str, str, Value, Callable[..., Any], str]) -> None:
        """Start all calls by rpc_async, then wait for them in the same order.

        Args:
            calls: Worker, description, expected value, function and its argument, or "" for none.
        """
        begun = [
            (time.monotonic(), rpc.rpc_async(callee, function, (argument,) if argument else ()))
            for callee, _, _, function, argument in calls
        ]
        for (start, future), (callee, what, expected, _, _) in zip(begun, calls, strict=True):
            self._rank.report_phase(f"{callee}: rpc_async {what}")
            self._record(callee, f"rpc_async {what}", expected, start, future.wait())

    def _record(self, callee: str, what: str, expected: Value, start: float, result: Any) -> None:
        took = time.monotonic() - start
        function, _, called = what.partition(" ")
        found = _described(result), expected, start - self._began, took
        self.calls.append(RpcCall(callee, function, called, *found))


def _described(result: Any) -> Value:
    """Return a tensor's numbers, a reference's owner, or a plain value unchanged."""
    if isinstance(result, torch.Tensor):
        return _numbers(result)
    if isinstance(result, PyRRef):
        return f"RRef to {'this worker itself' if result.is_owner() else result.owner_name()}"
    return result if isinstance(result, bool | int | float | str) else ""


def _numbers(tensor: Tensor) -> tuple[float, ...]:
    return tuple(tensor.tolist())


def _shown(tensor: Tensor) -> str:
    return f"[{' '.join(f'{each:g}' for each in tensor.tolist())}]"


def make_calls(recorder: CallRecorder, world_size: int) -> None:
    """Make calls by rpc_sync, rpc_async, remote and RRefs; one of them raises an exception."""
    call, first = recorder.call, worker(1)
    there, doubled = f"RRef to {first}", (2.0, 4.0, 6.0)
    numbers = torch.tensor([1.0, 2.0, 3.0])
    # A function of torch: send a tensor, receive the result.
    added = (11.0, 12.0, 13.0)
    call(first, "rpc_sync add([1 2 3], 10)", added, rpc.rpc_sync, first, torch.add, (numbers, 10))
    # Concurrent calls: one to each worker, then two that wait for each other.
    workers = map(worker, range(1, world_size))
    recorder.call_concurrently(*((each, "who()", each, remote.who, "") for each in workers))
    recorder.call_concurrently(
        (first, "swap('ping')", "pong", remote.swap, "ping"),
        (first, "swap('pong')", "ping", remote.swap, "pong"),
    )
    # An object created on another worker stays there; a reference is returned immediately.
    counter = call(first, "remote Counter(5)", there, rpc.remote, first, remote.Counter, (5,))
    for number, total in ((3, 8), (-2, 6)):
        what = f"rref.rpc_sync add({number})"
        call(first, what, total, lambda number: counter.rpc_sync().add(number), number)
    what = "remote mul([1 2 3], 2)"
    product = call(first, what, there, rpc.remote, first, torch.mul, (numbers, 2))
    call(first, "rref.to_here", doubled, product.to_here)
    if world_size > 2:  # a reference can be passed on
        third = worker(2)
        what = "rpc_sync fetch(RRef)"
        call(third, what, doubled, rpc.rpc_sync, third, remote.fetch, (product,))

    def raised() -> str:
        """Return the exception of a remote call, which is raised here with its own type."""
        try:
            result = rpc.rpc_sync(first, remote.root, (-9,))
        except ValueError as error:
            found = re.search(RAISED, str(error))
            return found[2] if found and worker(int(found[1])) == first else str(error)
        return f"no exception, but {result}"

    call(first, "rpc_sync root(-9)", "ValueError('< 0')", raised)


def take_step(recorder: CallRecorder, world_size: int) -> None:
    """Take one step of SGD by distributed autograd on factors owned by other workers.

    The same step by ordinary autograd in this process gives the expected values.
    """
    call, numbers = recorder.call, torch.tensor([1.0, 2.0, 3.0])
    owners = (worker(1), worker(min(2, world_size - 1)))
    local = [torch.tensor(each, requires_grad=True) for each in FACTORS]
    local_optimizer = torch.optim.SGD(local, lr=LEARNING_RATE)
    factors = [
        call(
            owner,
            f"remote Factor({_shown(factor)})",
            f"RRef to {owner}",
            rpc.remote,
            owner,
            remote.Factor,
            (factor.tolist(),),
        )
        for owner, factor in zip(owners, local, strict=True)
    ]
    triples = list(zip(owners, factors, local, strict=True))
    references = [factor.rpc_sync().reference() for factor in factors]
    optimizer = DistributedOptimizer(  # type: ignore[no-untyped-call]  # untyped in torch
        torch.optim.SGD, references, lr=LEARNING_RATE
    )
    with autograd.context() as context:
        product = expected = numbers
        for owner, factor, here in triples:
            expected = expected * here
            product = call(
                owner,
                f"rref.rpc_sync times({_shown(product)})",
                _numbers(expected),
                factor.rpc_sync().times,
                product,
            )
        expected.sum().backward()  # type: ignore[no-untyped-call]  # untyped in torch
        backward = autograd.backward  # type: ignore[attr-defined]  # missing in torch's stubs
        all_owners = ", ".join(dict.fromkeys(owners))
        call(all_owners, "backward (sum)", "", backward, context, [product.sum()])
        for owner, factor, here in triples:
            assert here.grad is not None  # noqa: S101 - backward has just set it
            gradient = _numbers(here.grad)
            call(owner, "rref.rpc_sync gradient()", gradient, factor.rpc_sync().gradient, context)
        call(all_owners, "optimizer.step", "", optimizer.step, context)
    local_optimizer.step()
    for owner, factor, here in triples:
        call(owner, "rref.rpc_sync value()", _numbers(here), factor.rpc_sync().value)
