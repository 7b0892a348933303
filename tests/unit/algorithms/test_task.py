"""What algorithms are asked for is what the ops declare."""

from __future__ import annotations

import pytest

from distdemo import ops
from distdemo.ops.contract import Undefined
from distdemo.ops.spec import OpSpec
from distdemo.trace import algorithms
from distdemo.trace.algorithms.plan import plan_of
from distdemo.trace.algorithms.task import TASKS


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_chunks_are_the_pieces_of_the_op(name: str, n: int) -> None:
    op, root = ops.REGISTRY[name], (n - 1) if ops.REGISTRY[name].root_is else 0
    spec = OpSpec(name, n, shape=(n,), root=root, reduce_op="sum")
    plan = plan_of(algorithms.of_op(name)[0], n, n, root)
    for rank in range(n):
        if not plan.task.whole:
            assert len(plan.given(rank)) == op.pieces(rank, spec)
        result = op.result(rank, spec)
        if isinstance(result, Undefined):
            assert not plan.due(rank)
            continue
        sources = [plan.complete(chunk) for chunk in plan.due(rank)]
        if plan.task.whole:
            assert {source.ranks for source in result} == set(sources)
        else:
            assert [source.ranks for source in result] == sources
        assert {source.reduced for source in result} <= {plan.task.reduced}


def test_every_op_that_moves_data_between_all_has_an_algorithm() -> None:
    assert set(algorithms.ops()) == set(TASKS) == set(ops.REGISTRY) - {"barrier", "p2p"}


def test_names_can_be_typed() -> None:
    for each in algorithms.REGISTRY:
        assert each.name.replace("-", "").isalpha()
        assert each.name.islower()
        assert each.summary.endswith(".")
        assert "  " not in each.source
        assert len(each.source) > 10
