"""Every algorithm on paper: its values, counts and formulas."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plain import facts_of
from traces import chunks_before

from distdemo import ops, schedules
from distdemo.ops.buffers import expected
from distdemo.ops.spec import OpSpec
from distdemo.schedules.contract import REGISTERED, Algorithm, Letters, Move, Round
from distdemo.schedules.schedule import (
    Exchange,
    Schedule,
    ScheduleError,
    Transfer,
    by_formula,
    count,
)
from distdemo.trace.report import Holdings, contributions

COMBINE: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "avg": np.add,
}
"""Functions by reduce op. An average is a sum that is divided at the end."""
PAGE = Path(__file__).parents[2] / "docs" / "trace.md"


@cache
def pieces_after(spec: OpSpec, rank: int) -> list[tuple[Any, Any]] | None:
    """Return each piece of the op's result with its error bound."""
    wanted = expected(ops.REGISTRY[spec.op], rank, spec)
    if wanted is None:
        return None
    return [
        (
            piece.tensor.reshape(-1).numpy(),
            0 if piece.bound is None else piece.bound.flatten().numpy(),
        )
        for piece in wanted
    ]


def assert_values(
    schedule: Schedule, elements: int, reduce_op: str = "sum", rounds: int | None = None
) -> None:
    """Play the schedule with values, and compare the result with the op's."""
    spec = OpSpec(
        schedule.algorithm.op,
        schedule.n,
        dtype="float64" if reduce_op == "avg" else "int64",
        shape=(elements,),
        reduce_op=reduce_op,
        root=schedule.root,
        variant="list",
    )
    start = [chunks_before(schedule, rank, spec) for rank in range(schedule.n)]
    holdings = Holdings(schedule, start, COMBINE[reduce_op])
    for exchange in list(schedule.exchanges())[:rounds]:
        holdings.play(exchange)
    for rank, held in enumerate(holdings.held):
        wanted = pieces_after(spec, rank)
        if wanted is None:
            assert not schedule.due(rank)
            continue
        got = [held[chunk] for chunk in schedule.due(rank)]
        got = [np.concatenate(got)] if schedule.goal.whole else got
        for piece, (right, bound) in zip(got, wanted, strict=True):
            result = piece / schedule.n if reduce_op == "avg" else piece
            assert result.shape == right.shape
            assert (abs(result - right) <= bound).all(), (reduce_op, rank)


def value_of(text: str, letters: Letters) -> Fraction:
    """Return the value of a text, read as Python: ``2 lg p·[e>0]`` is ``2*lg_p*(e>0)``."""
    text = text.translate(str.maketrans("−·[]", "-*()")).replace("=", "==")
    text = re.sub(r"lg (\w)", r"lg_\1", text)
    text = re.sub(r"(?<=[\d)])\s*(?=[A-Za-z(])|(?<=\b[nCpebfmt])(?=\()", "*", text)
    return Fraction(eval(text, {"S": 1, "min": min, "max": max} | vars(letters)))  # noqa: S307 - a formula of ours


def assert_counts(schedule: Schedule, elements: int) -> None:
    """Compare the formulas' values with the counts, and with their texts."""
    if schedule.n > 1:
        letters = Letters(schedule.n, schedule.sizes.chunks)
        for text, value in schedule.algorithm.formulas:
            assert value_of(text, letters) == value(letters), (text, schedule.n)
    spec = OpSpec(schedule.algorithm.op, schedule.n, shape=(elements,))
    payload = ops.REGISTRY[spec.op].traffic(spec).payload_bytes
    counts, sent, received = count(schedule, 4)
    case = (spec.op, schedule.algorithm.name, schedule.n)
    assert by_formula(schedule, payload) == counts, case
    assert (sum(sent), sum(received)) == (counts.total_bytes,) * 2, case


@pytest.mark.parametrize("name", schedules.ops())
def test_every_algorithm_gives_the_result_of_its_op(name: str) -> None:
    """1 to 17 ranks; no element, one, fewer than ranks, and more; each reduce op; two roots."""
    op = ops.REGISTRY[name]
    names = list(COMBINE) if "reduce_op" in op.takes else ["sum"]
    for algorithm in schedules.of_op(name):
        for n in (1, 2, 3, 4, 5, 6, 7, 8, 11, 17):
            for turn, elements in enumerate(sorted({0, 1, n - 1, n + 1})):
                root = (n // 2 + elements) % n if op.root_is else 0
                schedule = Schedule.of(algorithm, n, elements, root)
                assert_values(schedule, elements, names[(n + turn) % len(names)])


def test_a_wrong_value_fails_the_check() -> None:
    with pytest.raises(AssertionError):
        assert_values(schedules.schedule(OpSpec("all_reduce", 3, shape=(3,)), "ring"), 3, rounds=3)


def test_every_collective_except_barrier_has_an_algorithm() -> None:
    assert set(schedules.ops()) == {op for op in ops.REGISTRY if facts_of(op).traced}


def test_counts_match_the_formulas() -> None:
    for algorithm, n in product(schedules.REGISTRY, (*range(1, 18), 33, 64)):
        elements = 3 * algorithm.chunks(n) if algorithm.goal.whole else 3
        root = n // 3 if ops.REGISTRY[algorithm.op].root_is else 0
        assert_counts(Schedule.of(algorithm, n, elements, root), elements)


def test_unequal_chunks_are_counted_exactly() -> None:
    counts, sent, received = count(Schedule.of(schedules.find("broadcast", "tree"), 4, 5, 1), 4)
    assert (sent, received) == ([0, 40, 0, 20], [20, 0, 20, 20])
    assert (counts.busiest_bytes, counts.serial_bytes) == (40, 40)
    counts, sent, _ = count(Schedule.of(schedules.find("all_reduce", "ring"), 3, 4), 1)
    assert sum(sent) == counts.total_bytes == 16
    assert (counts.rounds, counts.sent_bytes, counts.serial_bytes) == (4, 6, 8)


def test_an_impossible_schedule_is_rejected() -> None:
    def one_round(*moves: Move) -> Schedule:
        odd = replace(schedules.find("all_reduce"), rounds=lambda *_: [Round(moves)])
        return Schedule.of(odd, 4, 4)

    for moves, says in (
        ([(1, 1, (1,))], "round 1 a rank sends to itself"),
        ([(0, 1, (0,)), (0, 2, (0,))], "sends two messages"),
        ([(0, 2, (0,)), (1, 2, (1,))], "receives two"),
    ):
        with pytest.raises(ScheduleError, match=says):
            list(one_round(*moves).exchanges())
    schedule = Schedule.of(schedules.find("broadcast", "tree"), 4, 1)
    with pytest.raises(ScheduleError, match="rank 3 sends chunk 0, which it doesn't hold"):
        contributions(schedule).play(Exchange(1, "", (Transfer(3, 0, (0,), 1),)))


def test_the_algorithm_in_the_docs_is_right() -> None:
    example = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    names: dict[str, Any] = dict(vars(schedules.reductions))
    exec(compile(example[1], str(PAGE), "exec"), names)  # noqa: S102 - the page is our own
    own: Algorithm = REGISTERED.pop()
    assert own.name == "line"
    for n in (1, 2, 3, 4, 5, 8):
        schedule = Schedule.of(own, n, 3)
        assert_values(schedule, 3)
        assert_counts(schedule, 3)
