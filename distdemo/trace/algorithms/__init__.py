"""The algorithms: one a file behind one contract, and the registry that is their only list."""

from __future__ import annotations

from distdemo.trace.algorithms.all_gather_bruck import BruckAllGather
from distdemo.trace.algorithms.all_gather_doubling import DoublingAllGather
from distdemo.trace.algorithms.all_gather_ring import RingAllGather
from distdemo.trace.algorithms.all_reduce_aggregator import AggregatorAllReduce
from distdemo.trace.algorithms.all_reduce_binary_tree import BinaryTreeAllReduce
from distdemo.trace.algorithms.all_reduce_doubling import DoublingAllReduce
from distdemo.trace.algorithms.all_reduce_halving_doubling import HalvingDoublingAllReduce
from distdemo.trace.algorithms.all_reduce_naive import NaiveAllReduce
from distdemo.trace.algorithms.all_reduce_ring import RingAllReduce
from distdemo.trace.algorithms.all_to_all_bruck import BruckAllToAll
from distdemo.trace.algorithms.all_to_all_pairwise import PairwiseAllToAll
from distdemo.trace.algorithms.broadcast_chain import ChainBroadcast
from distdemo.trace.algorithms.broadcast_flat import FlatBroadcast
from distdemo.trace.algorithms.broadcast_tree import TreeBroadcast
from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.algorithms.gather_flat import FlatGather
from distdemo.trace.algorithms.gather_tree import TreeGather
from distdemo.trace.algorithms.reduce_chain import ChainReduce
from distdemo.trace.algorithms.reduce_flat import FlatReduce
from distdemo.trace.algorithms.reduce_scatter_halving import HalvingReduceScatter
from distdemo.trace.algorithms.reduce_scatter_ring import RingReduceScatter
from distdemo.trace.algorithms.reduce_tree import TreeReduce
from distdemo.trace.algorithms.scatter_flat import FlatScatter
from distdemo.trace.algorithms.scatter_tree import TreeScatter

REGISTRY: tuple[Algorithm, ...] = (
    RingAllReduce(),
    NaiveAllReduce(),
    AggregatorAllReduce(),
    BinaryTreeAllReduce(),
    DoublingAllReduce(),
    HalvingDoublingAllReduce(),
    RingReduceScatter(),
    HalvingReduceScatter(),
    RingAllGather(),
    DoublingAllGather(),
    BruckAllGather(),
    TreeBroadcast(),
    FlatBroadcast(),
    ChainBroadcast(),
    TreeReduce(),
    FlatReduce(),
    ChainReduce(),
    TreeScatter(),
    FlatScatter(),
    TreeGather(),
    FlatGather(),
    PairwiseAllToAll(),
    BruckAllToAll(),
)
"""Every algorithm; an op's first is what ``trace`` takes if nobody says which."""

if len({(each.op, each.name) for each in REGISTRY}) != len(REGISTRY):
    raise RuntimeError("two algorithms of one op have the same name")


def of_op(op: str) -> tuple[Algorithm, ...]:
    """The algorithms of this op, by torch's name of it; none if it has none."""
    return tuple(each for each in REGISTRY if each.op == op)


def ops() -> tuple[str, ...]:
    """Torch's names of the ops that have any."""
    return tuple(dict.fromkeys(each.op for each in REGISTRY))
