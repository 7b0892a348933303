"""The four ways to call: rpc_sync, rpc_async, remote with RRefs, and an exception that returns."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import rpc

from distdemo.rpc import remote
from distdemo.rpc.records import name_of
from distdemo.rpc.timeline import Label

if TYPE_CHECKING:
    from torch._C._distributed_rpc import PyRRef

    from distdemo.rpc.timeline import Timeline

    Reference = PyRRef[Any]

_RAISED = re.compile(r"On WorkerInfo\(id=\d+, name=(?P<name>[\w:-]+)\):\n(?P<error>.+)")
"""How torch begins the text of an exception that was raised on another worker (2.8 to 2.15)."""


def make_calls(timeline: Timeline, world_size: int) -> None:
    """Make a call of every kind, and write down what came back."""
    first = name_of(1)
    _rpc_sync(timeline, first)
    _rpc_async(timeline, [name_of(rank) for rank in range(1, world_size)])
    _references(timeline, first, name_of(2) if world_size > 2 else None)
    _exception(timeline, first)


def _rpc_sync(timeline: Timeline, callee: str) -> None:
    """A function of torch's own, on another worker: a tensor goes there, the result comes back."""
    tensor = torch.tensor([1.0, 2.0, 3.0])
    timeline.call(
        Label(callee, "rpc_sync", "add([1 2 3], 10)", (11.0, 12.0, 13.0)),
        lambda: rpc.rpc_sync(callee, torch.add, (tensor, 10)),
    )


def _rpc_async(timeline: Timeline, callees: list[str]) -> None:
    """Several calls under way at once: one to each worker, then two that wait for each other."""
    timeline.at_once(
        [
            (
                Label(callee, "rpc_async", "who()", callee),
                partial(rpc.rpc_async, callee, remote.who),
            )
            for callee in callees
        ]
    )
    pairs = (("ping", "pong"), ("pong", "ping"))
    timeline.at_once(
        [
            (
                Label(callees[0], "rpc_async", f"swap('{mine}')", other),
                partial(rpc.rpc_async, callees[0], remote.swap, (mine,)),
            )
            for mine, other in pairs
        ]
    )


def _references(timeline: Timeline, owner: str, third: str | None) -> None:
    """An object made on another worker stays there; a reference to it comes back at once."""
    counter = timeline.call(
        Label(owner, "remote", "Counter(5)", f"RRef to {owner}"),
        lambda: rpc.remote(owner, remote.Counter, (5,)),
        reference,
    )
    for number, total in ((3, 8), (-2, 6)):
        timeline.call(
            Label(owner, "rref.rpc_sync", f"add({number})", total),
            partial(_add, counter, number),
        )
    product = timeline.call(
        Label(owner, "remote", "mul([1 2 3], 2)", f"RRef to {owner}"),
        lambda: rpc.remote(owner, torch.mul, (torch.tensor([1.0, 2.0, 3.0]), 2)),
        reference,
    )
    doubled = (2.0, 4.0, 6.0)
    timeline.call(Label(owner, "rref.to_here", "", doubled), product.to_here)
    if third is not None:  # a reference may be handed on
        timeline.call(
            Label(third, "rpc_sync", "fetch(RRef)", doubled),
            lambda: rpc.rpc_sync(third, remote.fetch, (product,)),
        )


def _add(counter: Reference, number: int) -> int:
    """A method called on the worker that owns the object."""
    total: int = counter.rpc_sync().add(number)
    return total


def _exception(timeline: Timeline, callee: str) -> None:
    """What is raised there is raised here, with its own type."""
    timeline.call(
        Label(callee, "rpc_sync", "root(-9)", "ValueError('< 0')"),
        lambda: _caught(callee),
    )


def _caught(callee: str) -> str:
    try:
        root = rpc.rpc_sync(callee, remote.root, (-9,))
    except ValueError as error:
        found = _RAISED.search(str(error))
        from_there = found is not None and found["name"] == callee
        return found["error"] if found and from_there else f"ValueError of another: {error}"
    return f"no exception, but {root}"


def reference(rref: Reference) -> str:
    """What the timeline says of a reference."""
    return f"RRef to {rref.owner_name()}" if not rref.is_owner() else "RRef to this worker itself"
