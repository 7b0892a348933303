"""Traffic of a block: on real ranks it matches the schedules' own counts and formulas."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from traces import spec_of

from distdemo import schedules
from distdemo.schedules.run import Runner
from distdemo.schedules.schedule import by_formula, count
from distdemo.testing import RanksError, run_ranks, traffic
from distdemo.testing.counting import BlockTraffic, CollectiveCall

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("forked_hosts")]


def run_schedules(rank: int, world_size: int) -> list[BlockTraffic]:
    results = []
    for algorithm in schedules.REGISTRY:
        spec = spec_of(algorithm.op, world_size, 120)
        schedule = schedules.schedule(spec, algorithm.name)
        runner = Runner(rank, schedule, spec, "cpu")
        runner.reset()
        with traffic() as used:
            runner.run()
        results.append(used)
    return results


@pytest.mark.parametrize("n", [1, 5])
def test_it_matches_every_schedule(n: int) -> None:
    by_rank = run_ranks(run_schedules, n, timeout=90)
    for algorithm, results in zip(schedules.REGISTRY, zip(*by_rank, strict=True), strict=True):
        schedule = schedules.schedule(spec_of(algorithm.op, n, 120), algorithm.name)
        counts, sent, _ = count(schedule, 4)
        title = f"{algorithm.name} {algorithm.op} on {n} ranks"
        assert [used.sent_bytes for used in results] == list(sent), title
        assert {used.total_bytes for used in results} == {counts.total_bytes}, title
        rounds = by_formula(schedule, 480).rounds
        assert {used.rounds for used in results} == {rounds}, title
        assert not any(used.calls for used in results), title


# ------------------------------------------------------------------------------------- messages


def exchange_with_neighbours(rank: int, world_size: int) -> list[tuple[int, int, int]]:
    """Pass four numbers around the ring in several ways."""
    right = (rank + 1) % world_size
    left = (rank - 1) % world_size
    mine, theirs = torch.ones(4), torch.empty(4)

    def by_handles() -> None:
        receiving: Any = dist.irecv(theirs, left)
        pending.append(dist.isend(mine, right))
        receiving.wait()

    def one_after_the_other() -> None:
        steps: list[Any] = [partial(dist.send, mine, right), partial(dist.recv, theirs, left)]
        for step in steps[:: -1 if rank % 2 else 1]:
            step()

    def unwaited_until_the_end() -> None:
        pending.append(dist.isend(mine, right))
        pending.append(dist.irecv(theirs, left))

    def from_any() -> None:
        pending.append(dist.isend(mine, right, tag=3))
        dist.recv(theirs, tag=3)

    def without_its_send() -> None:
        dist.recv(theirs, left, tag=1)

    sending: Any = dist.isend(mine, right, tag=1)
    pending: list[Any] = []
    results = []
    for function in (
        by_handles,
        one_after_the_other,
        unwaited_until_the_end,
        from_any,
        without_its_send,
    ):
        with traffic() as used:
            function()
        results.append((used.sent_bytes, used.total_bytes, used.rounds))
        for work in pending:
            work.wait()
        pending.clear()
    sending.wait()
    return results


def test_ways_to_send_and_receive() -> None:
    around, in_turn = (16, 64, 1), (16, 64, 2)
    for results in run_ranks(exchange_with_neighbours, 4):
        assert results == [around, in_turn, around, around, (0, 0, 0)]


# -------------------------------------------------------------------------------- collective calls


def make_each_call(rank: int, world_size: int) -> tuple[CollectiveCall, ...]:
    n = world_size
    one, all_of_them = torch.ones(6), torch.ones(6 * n)
    parts = [torch.ones(6) for _ in range(n)]
    root = parts if rank == 0 else None
    splits = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    sent, received = splits[rank], [row[rank] for row in splits]
    dist.all_reduce(one)
    with traffic() as used:
        dist.all_reduce(one)  # as before the block
        work: Any = dist.all_reduce(one, async_op=True)
        work.wait()
        dist.broadcast(one, 0)
        dist.all_gather(parts, one)
        getattr(dist, "all_gather_single", dist.all_gather_into_tensor)(all_of_them, one)
        dist.gather(one, root, 0)
        getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)(one, all_of_them)
        dist.all_to_all_single(torch.ones(sum(received)), torch.ones(sum(sent)), received, sent)
        dist.barrier()
        dist.new_group([0])
    assert (used.sent_bytes, used.total_bytes, used.rounds) == (0, 0, 0)
    return used.calls


def test_payloads_of_collective_calls() -> None:
    names = ["all_reduce", "all_reduce", "broadcast", "all_gather", "all_gather_single", "gather"]
    names += ["reduce_scatter_single", "all_to_all_single", "barrier"]
    for rank, calls in enumerate(run_ranks(make_each_call, 3)):
        uneven = 4 * (6 + 9 * rank)
        assert [call.op for call in calls] == names
        assert [call.payload_bytes for call in calls] == [*[24] * 3, *[72] * 4, uneven, 0]
        assert [call.blocking for call in calls] == [True, False, *[True] * 7]


# ------------------------------------------------------------------------------------- the errors


def send_one_message_too_few(rank: int) -> None:
    with traffic():
        if rank == 0:
            dist.recv(torch.empty(1), 1)


def test_a_rank_that_waits_at_the_end_is_part_of_a_deadlock() -> None:
    with pytest.raises(RanksError, match="Deadlock: ranks 0, 1 are waiting") as caught:
        run_ranks(send_one_message_too_few, 2)
    assert "made no more calls and waits for rank 0" in str(caught.value)
    assert isinstance(caught.value, AssertionError)
