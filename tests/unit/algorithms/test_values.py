"""Every algorithm, played by values without processes, does what its op does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from distdemo import ops
from distdemo.ops.buffers import Expected, cuts_of, held_before, reduced, tensors
from distdemo.ops.contract import Source, Undefined
from distdemo.ops.spec import OpSpec
from distdemo.trace import algorithms
from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.algorithms.plan import Plan, plan_of
from distdemo.trace.board import Board

WORLDS = range(1, 18)
COMBINE: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "avg": np.add,
    "premul_sum": np.add,
}
"""An average is a sum, divided at the end; a pre-multiplied sum one of multiples."""
FRACTIONS = ("avg", "premul_sum")

Rows = dict[str, Any]
"""A chunk, reduced by every operation at once: an array each."""


def payloads(n: int) -> tuple[int, ...]:
    """Elements: none, one, fewer than ranks, as many, and many more."""
    return tuple(sorted({0, 1, n - 1, n, 1000}))


def spec_of(algorithm: Algorithm, n: int, elements: int, root: int, reduce_op: str) -> OpSpec:
    dtype = "float64" if reduce_op in FRACTIONS else "int64"
    return OpSpec(
        algorithm.op, n, dtype, (elements,), reduce_op=reduce_op, root=root, variant="list"
    )


def combine(held: Rows, came: Rows) -> Rows:
    return {name: COMBINE[name](each, came[name]) for name, each in held.items()}


def start_of(plan: Plan, specs: dict[str, OpSpec]) -> list[dict[int, Rows]]:
    """What each rank holds before: inputs may differ from one reduce operation to another."""
    found: list[dict[int, Rows]] = [{} for _ in range(plan.n)]
    for rank, held in enumerate(found):
        for name, spec in specs.items():
            for chunk, numbers in zip(plan.given(rank), pieces_of(plan, rank, spec), strict=False):
                held.setdefault(chunk, {})[name] = numbers
    return found


def pieces_of(plan: Plan, rank: int, spec: OpSpec) -> list[Any]:
    before = held_before(ops.REGISTRY[spec.op], rank, spec)
    factor = spec.factor if spec.reduce_op == "premul_sum" else 1
    pieces = [factor * each.reshape(-1).numpy() for each in before]
    if not plan.task.whole:
        return pieces
    return np.split(pieces[0], [plan.sizes.before(chunk) for chunk in range(1, plan.sizes.chunks)])


@cache
def wanted(spec: OpSpec, source: Source) -> tuple[Any, Any]:
    """What the op says about one piece of a result, and how far it may be off."""
    op = ops.REGISTRY[spec.op]
    if source.reduced:
        each = reduced(op, cuts_of(op, source, spec), spec)
    else:
        (piece,) = tensors(op, cuts_of(op, source, spec), spec)
        each = Expected(piece)
    assert each.bound is None or spec.reduce_op == "avg"  # all else is whole numbers
    flat = each.tensor.reshape(-1).numpy()
    return flat, np.zeros(len(flat)) if each.bound is None else each.bound.reshape(-1).numpy()


def check(plan: Plan, specs: dict[str, OpSpec], held: tuple[dict[int, Rows], ...]) -> None:
    for name, spec in specs.items():
        op = ops.REGISTRY[spec.op]
        for rank in range(plan.n):
            result = op.result(rank, spec)
            if isinstance(result, Undefined):
                continue
            got = [held[rank][chunk][name] for chunk in plan.due(rank)]
            if plan.task.whole:
                got = [np.concatenate(got)]
            for piece, source in zip(got, result, strict=True):
                right, bound = wanted(spec, source)
                got_of_it = piece / plan.n if name == "avg" else piece
                assert got_of_it.shape == right.shape
                assert (abs(got_of_it - right) <= bound).all(), (name, rank)


@pytest.mark.parametrize(
    "algorithm", algorithms.REGISTRY, ids=lambda each: f"{each.op}-{each.name}"
)
def test_an_algorithm_gives_what_its_op_gives(algorithm: Algorithm) -> None:
    """For every number of ranks, payload and reduce operation, and two roots."""
    names = tuple(COMBINE) if "reduce_op" in ops.REGISTRY[algorithm.op].takes else ("sum",)
    for n in WORLDS:
        for elements in payloads(n):
            root = (n // 2 + elements) % n if ops.REGISTRY[algorithm.op].root_is else 0
            specs = {name: spec_of(algorithm, n, elements, root, name) for name in names}
            plan = plan_of(algorithm, n, elements, root)
            board = Board(plan, start_of(plan, specs), combine)
            for step in plan.steps():
                board.play(step)
            check(plan, specs, board.held)


def test_a_value_that_is_one_off_would_be_seen() -> None:
    algorithm = algorithms.of_op("all_reduce")[0]
    plan = plan_of(algorithm, 3, 3)
    specs = {"sum": spec_of(algorithm, 3, 3, 0, "sum")}
    board = Board(plan, start_of(plan, specs), combine)
    for step in list(plan.steps())[:-1]:
        board.play(step)
    with pytest.raises(AssertionError):
        check(plan, specs, board.held)


def test_torch_and_numpy_wrap_alike() -> None:
    """Products of 17 ranks are beyond 64 bits: both are compared as the hardware has them."""
    large = np.array([2**62, -(2**62)]) * 3
    assert large.tolist() == (torch.tensor([2**62, -(2**62)]) * 3).tolist()
