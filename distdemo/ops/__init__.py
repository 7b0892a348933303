"""The operations: one a file behind one contract, and the registry that is their only list."""

from __future__ import annotations

from distdemo.ops.all_gather import AllGather
from distdemo.ops.all_reduce import AllReduce
from distdemo.ops.all_to_all import AllToAll
from distdemo.ops.barrier import Barrier
from distdemo.ops.broadcast import Broadcast
from distdemo.ops.contract import Op
from distdemo.ops.gather import Gather
from distdemo.ops.p2p import PointToPoint
from distdemo.ops.reduce import Reduce
from distdemo.ops.reduce_scatter import ReduceScatter
from distdemo.ops.scatter import Scatter

_ALL: tuple[Op, ...] = (
    Broadcast(),
    Reduce(),
    AllReduce(),
    Scatter(),
    Gather(),
    AllGather(),
    ReduceScatter(),
    AllToAll(),
    Barrier(),
    PointToPoint(),
)

REGISTRY: dict[str, Op] = {op.name: op for op in _ALL}
"""Every op by torch's own name, in the order in which they are listed."""

if len(REGISTRY) != len(_ALL):
    raise RuntimeError("two ops of the registry have the same name")


def find(name: str) -> Op | None:
    """The op of this name, written as torch does or as the command line does."""
    return REGISTRY.get(name.replace("-", "_").lower())
