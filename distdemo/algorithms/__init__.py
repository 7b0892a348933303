"""The algorithms: one a file behind one contract, and the registry that is their only list."""

from __future__ import annotations

from distdemo.algorithms.all_gather_bruck import BruckAllGather
from distdemo.algorithms.all_gather_doubling import DoublingAllGather
from distdemo.algorithms.all_gather_ring import RingAllGather
from distdemo.algorithms.all_reduce_aggregator import AggregatorAllReduce
from distdemo.algorithms.all_reduce_binary_tree import BinaryTreeAllReduce
from distdemo.algorithms.all_reduce_doubling import DoublingAllReduce
from distdemo.algorithms.all_reduce_halving_doubling import HalvingDoublingAllReduce
from distdemo.algorithms.all_reduce_naive import NaiveAllReduce
from distdemo.algorithms.all_reduce_ring import RingAllReduce
from distdemo.algorithms.all_to_all_bruck import BruckAllToAll
from distdemo.algorithms.all_to_all_pairwise import PairwiseAllToAll
from distdemo.algorithms.broadcast_chain import ChainBroadcast
from distdemo.algorithms.broadcast_flat import FlatBroadcast
from distdemo.algorithms.broadcast_tree import TreeBroadcast
from distdemo.algorithms.contract import Algorithm
from distdemo.algorithms.gather_flat import FlatGather
from distdemo.algorithms.gather_tree import TreeGather
from distdemo.algorithms.reduce_chain import ChainReduce
from distdemo.algorithms.reduce_flat import FlatReduce
from distdemo.algorithms.reduce_scatter_halving import HalvingReduceScatter
from distdemo.algorithms.reduce_scatter_ring import RingReduceScatter
from distdemo.algorithms.reduce_tree import TreeReduce
from distdemo.algorithms.scatter_flat import FlatScatter
from distdemo.algorithms.scatter_tree import TreeScatter

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
