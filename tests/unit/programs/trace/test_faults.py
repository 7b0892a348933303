"""A schedule with a fault does not do what its op asks, and it shows whose contribution is off."""

from __future__ import annotations

from collections import Counter

import pytest

from distdemo.errors import UsageError
from distdemo.trace import algorithms
from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.algorithms.plan import Plan, ScheduleError, check, plan_of
from distdemo.trace.board import contributions
from distdemo.trace.faults import check_fault, fault_in, harms, spoiled, usual_fault
from distdemo.trace.scheduling import Fault, FaultKind, Step, Transfer

KINDS: tuple[FaultKind, ...] = ("drop", "neighbour", "twice")


def algorithm(op: str, name: str) -> Algorithm:
    return next(each for each in algorithms.of_op(op) if each.name == name)


def ring(n: int = 4) -> Plan:
    return plan_of(algorithm("all_reduce", "ring"), n, n)


def wrong(plan: Plan, fault: Fault) -> dict[tuple[int, int], Counter[int]]:
    """By rank and chunk: how often each contribution is there too often (or, below 0, not)."""
    board = contributions(plan, forgiving=True)
    for step in spoiled(plan, fault):
        board.play(step)
    found = {}
    for rank in range(plan.n):
        for chunk in plan.due(rank):
            off = Counter(board.held[rank].get(chunk, ()))
            off.subtract(plan.complete(chunk))
            if any(off.values()):
                found[rank, chunk] = Counter({each: by for each, by in off.items() if by})
    return found


def test_a_dropped_message_leaves_its_contributions_out_on_every_rank() -> None:
    """Rank 1's sum of chunk 1 never reaches rank 2, so nobody gets rank 1's part of it."""
    assert wrong(ring(), Fault("drop", 1, 1)) == {(rank, 1): Counter({1: -1}) for rank in range(4)}


def test_a_message_to_the_wrong_neighbour_is_lacking_here_and_too_much_there() -> None:
    """The last round of the reduce-scatter: rank 0's sum of chunk 2 goes to rank 2, not to rank 1.

    So rank 1 passes on its own chunk 2 as if it were complete; rank 2's is overwritten by it.
    """
    found = wrong(ring(), Fault("neighbour", 3, 0))
    assert found == {(rank, 2): Counter({0: -1, 2: -1, 3: -1}) for rank in range(4)}


def test_a_sum_that_goes_the_wrong_way_early_on_may_still_be_complete_in_the_end() -> None:
    """It meets the rest of it on its way, and sums don't ask which way they came."""
    assert wrong(ring(), Fault("neighbour", 1, 1)) == {}
    assert not harms(ring(), Fault("neighbour", 1, 1))


def test_what_is_reduced_twice_is_there_twice() -> None:
    assert wrong(ring(), Fault("twice", 1, 1)) == {(rank, 1): Counter({1: 1}) for rank in range(4)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("each", algorithms.REGISTRY, ids=lambda each: f"{each.op}-{each.name}")
def test_no_usual_fault_goes_unnoticed(each: Algorithm, kind: FaultKind) -> None:
    plan = plan_of(each, 5, each.chunks(5), root=1 if each.op == "reduce" else 0)
    try:
        fault = usual_fault(plan, kind)
    except UsageError:
        assert kind == "twice"
        assert not plan.task.reduced
        return
    check_fault(plan, fault)
    assert wrong(plan, fault)


@pytest.mark.parametrize("kind", KINDS)
def test_where_numbers_are_combined_another_rank_than_the_one_with_a_zero_is_taken(
    kind: FaultKind,
) -> None:
    for each in algorithms.REGISTRY:
        plan = plan_of(each, 4, each.chunks(4))
        if plan.task.reduced:
            assert usual_fault(plan, kind).src != 0, each.name


def test_in_a_round_the_first_message_that_matters_is_taken_and_else_the_first() -> None:
    assert fault_in(ring(), "drop", 1) == Fault("drop", 1, 1)
    assert fault_in(ring(), "neighbour", 3) == Fault("neighbour", 3, 1)
    harmless = fault_in(ring(), "neighbour", 1)
    assert harmless == Fault("neighbour", 1, 1)
    assert not harms(ring(), harmless)


@pytest.mark.parametrize(
    ("kind", "number", "says"),
    [("drop", 7, "no round 7"), ("drop", 0, "no round 0"), ("twice", 4, "copies")],
)
def test_a_round_that_can_not_go_wrong_so_is_refused(
    kind: FaultKind, number: int, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        fault_in(ring(), kind, number)


def test_harm_is_told_from_the_chunks_of_the_message_alone() -> None:
    """As from all of them: a chunk has nothing to do with another one."""
    for each in algorithms.REGISTRY:
        plan = plan_of(each, 5, each.chunks(5))
        for step in plan.steps():
            for kind in KINDS:
                fault = Fault(kind, step.number, step.transfers[-1].src)
                assert harms(plan, fault) == bool(wrong(plan, fault)), (each.op, each.name, fault)


@pytest.mark.parametrize(
    ("fault", "n", "says"),
    [
        (Fault("drop", 7, 0), 4, "no round 7"),
        (Fault("drop", 1, 9), 4, "sends nothing"),
        (Fault("twice", 4, 0), 4, "copies"),
        (Fault("neighbour", 1, 0), 2, "no wrong neighbour"),
    ],
)
def test_faults_that_can_not_be_are_refused(fault: Fault, n: int, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        check_fault(ring(n), fault)
    assert caught.value.why
    assert caught.value.hint


def test_nothing_can_go_wrong_where_nothing_is_sent() -> None:
    with pytest.raises(UsageError, match="spoiled"):
        usual_fault(ring(1), "drop")


def test_a_schedule_that_no_link_can_do_is_refused() -> None:
    to_itself = Step(3, "", (Transfer(1, 1, (0,), 1),))
    with pytest.raises(ScheduleError, match="round 3 rank 1 sends to itself"):
        check(to_itself)
    twice = Step(2, "", (Transfer(1, 2, (0,), 1), Transfer(1, 3, (0,), 1)))
    with pytest.raises(ScheduleError, match="rank 1 sends two messages"):
        check(twice)
    both = Step(2, "", (Transfer(1, 2, (0,), 1), Transfer(3, 2, (0,), 1)))
    with pytest.raises(ScheduleError, match="rank 2 receives two messages"):
        check(both)


def test_what_a_rank_does_not_have_it_can_not_send() -> None:
    plan = plan_of(algorithm("broadcast", "tree"), 4, 1)
    with pytest.raises(ScheduleError, match="rank 3 sends chunk 0, which it does not have"):
        contributions(plan).play(Step(1, "", (Transfer(3, 0, (0,), 1),)))
