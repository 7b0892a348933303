"""Traffic of a block: on real ranks it matches the schedules' own counts and formulas."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from traces import spec_of

from distdemo import schedules
from distdemo.schedules.count import by_formula, count
from distdemo.schedules.run import Runner
from distdemo.schedules.schedule import Schedule
from distdemo.testing import RanksError, run_ranks, traffic
from distdemo.testing.counting import CollectiveCall, Traffic

FEWER_ROUNDS = {("all_reduce", "binary-tree")}
"""Schedules in which a rank could send earlier than its round: a leaf near the root."""


def run_schedules(rank: int, world_size: int) -> list[Traffic]:
    found = []
    for algorithm in schedules.REGISTRY:
        spec = spec_of(algorithm.op, world_size, 120)
        schedule = schedules.schedule(spec, algorithm.name)
        runner = Runner(rank, schedule, spec, "cpu")
        runner.reset()
        with traffic() as used:
            runner.run()
        found.append(used)
    return found


def earliest(schedule: Schedule) -> int:
    """Return the rounds if every rank sends and receives as early as the order of moves allows."""
    clocks: defaultdict[int, int] = defaultdict(int)
    sends: defaultdict[int, int] = defaultdict(int)
    receives: defaultdict[int, set[int]] = defaultdict(set)
    for step in schedule.steps():
        ends = {}
        for each in step.transfers:
            start = max(clocks[each.src], sends[each.src])
            sends[each.src] = start + 1
            end = next(t for t in range(start + 1, 999) if t not in receives[each.dst])
            receives[each.dst].add(end)
            ends[each.dst] = end
        for rank, end in ends.items():
            clocks[rank] = max(clocks[rank], end)
    return max(clocks.values(), default=0)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8])
def test_it_matches_every_schedule(n: int) -> None:
    by_rank = run_ranks(run_schedules, n, timeout=90)
    for algorithm, found in zip(schedules.REGISTRY, zip(*by_rank, strict=True), strict=True):
        spec = spec_of(algorithm.op, n, 120)
        schedule = schedules.schedule(spec, algorithm.name)
        counts, sent, _ = count(schedule, 4)
        title = f"{algorithm.name} {algorithm.op} on {n} ranks"
        assert [each.sent_bytes for each in found] == list(sent), title
        assert {each.total_bytes for each in found} == {counts.total_bytes}, title
        assert {each.rounds for each in found} == {earliest(schedule)}, title
        rounds = by_formula(schedule, 480).rounds
        if (algorithm.op, algorithm.name) in FEWER_ROUNDS:
            assert found[0].rounds < rounds or n < 5, title
        else:
            assert found[0].rounds == rounds, title
        assert not any(each.calls for each in found), title


# ------------------------------------------------------------------------------------- messages


def exchange_with_neighbours(rank: int, world_size: int) -> list[tuple[int, int, int]]:
    """Pass four numbers around the ring in several ways."""
    mine, theirs = torch.ones(4), torch.empty(4)
    right, left = (rank + 1) % world_size, (rank - 1) % world_size

    def by_handles() -> None:
        pending.extend([dist.irecv(theirs, left), dist.isend(mine, right)])
        pending.pop(0).wait()

    def by_batch() -> None:
        send, receive = dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.irecv, theirs, left)
        for work in dist.batch_isend_irecv([send, receive]):
            work.wait()

    def one_after_the_other() -> None:
        if rank % 2:
            dist.recv(theirs, left)
            dist.send(mine, right)
        else:
            dist.send(mine, right)
            dist.recv(theirs, left)

    def unwaited_until_the_end() -> None:
        pending.append(dist.isend(mine, right))
        pending.append(dist.irecv(theirs, left))

    def from_any() -> None:
        pending.append(dist.isend(mine, right, tag=3))
        dist.recv(theirs, tag=3)

    def in_a_group() -> None:
        if rank in (1, 2):
            other = dist.send if rank == 1 else dist.recv
            other(mine, 3 - rank, group=group)

    def begun_before() -> None:
        dist.recv(theirs, left, tag=1)
        pending.append(dist.isend(torch.ones(2, dtype=torch.float64), right))

    group = dist.new_group([1, 2])
    pending: list[Any] = []
    found = []
    for function in (
        by_handles,
        by_batch,
        one_after_the_other,
        unwaited_until_the_end,
        from_any,
        in_a_group,
    ):
        with traffic() as used:
            function()
        found.append((used.sent_bytes, used.total_bytes, used.rounds))
        for each in pending:
            each.wait()
        pending.clear()
    sending: Any = dist.isend(mine, right, tag=1)
    with traffic() as used:
        begun_before()
    dist.recv(torch.empty(2, dtype=torch.float64), left)
    for each in [sending, *pending]:
        each.wait()
    return [*found, (used.sent_bytes, used.total_bytes, used.rounds)]


def test_each_way_to_send_and_receive() -> None:
    by_rank = run_ranks(exchange_with_neighbours, 4)
    around, in_turn = (16, 64, 1), (16, 64, 2)
    for rank, found in enumerate(by_rank):
        in_group = (16 * (rank == 1), 16, 1)
        assert found == [around, around, in_turn, around, around, in_group, (16, 64, 0)]


def flat(rank: int, world_size: int, *, receive_first: bool) -> Traffic:
    tensor = torch.zeros(3)
    with traffic() as used:
        if rank:
            dist.send(tensor, 0)
        peers = range(1, world_size)
        if rank == 0 and receive_first:
            receives: list[Any] = [dist.irecv(tensor.clone(), peer) for peer in reversed(peers)]
            for each in receives:
                each.wait()
        elif rank == 0:
            for peer in peers:
                dist.recv(tensor, peer)
    return used


@pytest.mark.parametrize("receive_first", [True, False])
def test_a_rank_receives_one_message_per_round(receive_first: bool) -> None:
    by_rank = run_ranks(partial(flat, receive_first=receive_first), 4)
    assert [each.sent_bytes for each in by_rank] == [0, 12, 12, 12]
    assert {(each.total_bytes, each.rounds) for each in by_rank} == {(36, 3)}


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
        dist.reduce(one, 0)
        dist.all_gather(parts, one)
        getattr(dist, "all_gather_single", dist.all_gather_into_tensor)(all_of_them, one)
        dist.gather(one, root, 0)
        dist.scatter(one, root, 0)
        dist.reduce_scatter(one, parts)
        getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)(one, all_of_them)
        dist.all_to_all_single(all_of_them, torch.ones(6 * n))
        dist.all_to_all_single(torch.ones(sum(received)), torch.ones(sum(sent)), received, sent)
        dist.barrier()
        dist.new_group([0])
    assert (used.sent_bytes, used.total_bytes, used.rounds) == (0, 0, 0)
    return used.calls


def test_payloads_of_collective_calls() -> None:
    names = ["all_reduce", "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_single"]
    names += ["gather", "scatter", "reduce_scatter", "reduce_scatter_single"]
    names += ["all_to_all_single", "all_to_all_single", "barrier"]
    for rank, calls in enumerate(run_ranks(make_each_call, 3)):
        uneven = 4 * (6 + 9 * rank)
        assert [each.op for each in calls] == names
        assert [each.payload_bytes for each in calls] == [*[24] * 4, *[72] * 7, uneven, 0]
        assert [each.blocking for each in calls] == [True, False, *[True] * 11]


# ------------------------------------------------------------------------------------- the errors


def send_one_message_too_few(rank: int) -> None:
    with traffic():
        if rank == 0:
            dist.recv(torch.empty(1), 1)


def test_a_rank_that_waits_at_the_end_is_part_of_a_deadlock() -> None:
    with pytest.raises(RanksError, match="Deadlock: ranks 0, 1 are waiting") as caught:
        run_ranks(send_one_message_too_few, 2)
    assert "made no more calls and waits for rank 0" in str(caught.value)


def count_after_an_error(rank: int) -> int:
    with pytest.raises(ZeroDivisionError), traffic() as used:
        rank //= 0
    assert not hasattr(used, "rounds")
    with traffic() as used:
        pass
    return len(used.calls)


def test_nothing_is_left_of_a_block_that_raised() -> None:
    assert run_ranks(count_after_an_error, 1) == [0]


def enter() -> None:
    with traffic():
        pass


def test_it_requires_the_sanitizer() -> None:
    with pytest.raises(RanksError, match="requires the sanitizer"):
        run_ranks(enter, 1, sanitize=False)
