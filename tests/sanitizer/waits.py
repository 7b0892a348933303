"""Programs that hang: early exits, groups, sends and receives, and deadlocks.

Based on mistakes reported in PyTorch's issues and forum, and on the classes of the MPI Bugs
Initiative. Each faulty program is followed by its fixed version.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from sanitizer.pairs import compute, faulty, poll_count, right
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel


def _wait(*works: dist.Work | None) -> None:
    for work in works:
        if work is not None:
            work.wait()


# ------------------------------------------------------------------------------------------ absent


@faulty("absent", ranks=(3,))
def leaves_without_data(rank: int, size: int) -> None:
    parts = torch.arange(6.0).chunk(3)  # three parts, for four ranks
    if rank >= len(parts):
        return
    parts[rank].mul_(2)
    dist.barrier()  # wrong


@right
def stays_without_data(rank: int, size: int) -> None:
    parts = torch.arange(6.0).chunk(3)
    if rank < len(parts):
        parts[rank].mul_(2)
    dist.barrier()


@faulty("absent", ranks=(2,))
def refuses_a_sample(rank: int, size: int) -> None:
    samples = torch.tensor([1.0, -1.0 if rank == 2 else 2.0])
    if samples.min() < 0:
        raise ValueError("a sample is negative")  # wrong
    dist.all_reduce(samples)


@right
def leaves_out_a_sample(rank: int, size: int) -> None:
    samples = torch.tensor([1.0, -1.0 if rank == 2 else 2.0])
    total = samples[samples >= 0].sum()
    dist.all_reduce(total)
    assert total == 10


@faulty("absent", ranks=(1,))
def leaves_by_sys_exit(rank: int, size: int) -> None:
    if rank == 1:
        sys.exit()
    total = torch.ones(4)
    dist.all_reduce(total)  # wrong


@right
def catches_its_sys_exit(rank: int, size: int) -> None:
    with suppress(SystemExit):
        if rank == 1:
            sys.exit()
    total = torch.ones(4)
    dist.all_reduce(total)
    assert total.tolist() == [4] * 4


@faulty("absent", ranks=(1,))
def leaves_by_os_exit(rank: int, size: int) -> None:
    weights = torch.full((3,), float(rank))
    dist.broadcast(weights, src=0)
    if rank == 1:
        os._exit(0)
    dist.all_reduce(weights)  # wrong


@right
def leaves_by_returning(rank: int, size: int) -> None:
    weights = torch.full((3,), float(rank))
    dist.broadcast(weights, src=0)
    dist.all_reduce(weights)
    if rank == 1:
        return
    weights.mul_(2)


@faulty("absent", ranks=(1,))
def destroys_before_the_last_call(rank: int, size: int) -> None:
    total = torch.ones(4)
    dist.all_reduce(total)
    if rank == 1:
        dist.destroy_process_group()  # wrong
        compute()  # it hasn't exited
    else:
        dist.all_reduce(total)


@faulty("absent", ranks=(1,))
def destroys_a_pair_while_others_go_on(rank: int, size: int) -> None:
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    total = torch.ones(4)
    if rank == 1:
        try:
            next(iter(()))
        except StopIteration:
            dist.destroy_process_group(pairs[0])  # wrong
        dist.destroy_process_group()
        compute()
    elif rank == 0:
        dist.all_reduce(total, group=pairs[0])
    else:
        first = poll_count()
        while poll_count() < first + 100:
            dist.all_reduce(total, group=pairs[1])


@faulty("absent", ranks=(1,))
def destroys_after_an_error(rank: int, size: int) -> None:
    total = torch.ones(4)
    try:
        for step in range(4):
            if rank == 1 and step == 2:
                raise ValueError("a sample is negative")  # wrong
            dist.all_reduce(total)
    finally:
        if rank == 1:
            dist.destroy_process_group()  # wrong
            compute()


@right
def goes_on_when_its_peer_has_left(rank: int, size: int) -> None:
    if rank == 1:
        compute()
        dist.destroy_process_group()
    elif rank == 0:
        with suppress(RuntimeError):
            dist.recv(torch.ones(4), src=1)
    compute()


@right
def sends_what_is_contiguous_after_all(rank: int, size: int) -> None:
    total = torch.ones(8)
    if rank == 0:
        compute()
        try:
            dist.send(total[::2], dst=1)
        except (RuntimeError, ValueError):
            dist.send(total, dst=1)
    elif rank == 1:
        dist.recv(total, src=0)


@right
def destroys_after_the_last_call(rank: int, size: int) -> None:
    pair = dist.new_group([0, 1])
    total = torch.ones(4)
    if rank < 2:
        dist.all_reduce(total, group=pair)
        dist.destroy_process_group(pair)
    dist.broadcast(total, src=1)
    if rank == 1:
        dist.destroy_process_group()  # other ranks may still be receiving
    compute()


@faulty("absent", ranks=(0,))
def barrier_where_one_saves(rank: int, size: int) -> None:
    weights = torch.ones(4)
    dist.all_reduce(weights)
    if rank == 0:
        saved = weights.tolist()
        assert saved == [4.0] * 4
        dist.barrier()  # wrong


@right
def barrier_after_one_saves(rank: int, size: int) -> None:
    weights = torch.ones(4)
    dist.all_reduce(weights)
    if rank == 0:
        saved = weights.tolist()
        assert saved == [4.0] * 4
    dist.barrier()


# ------------------------------------------------------------------------------------------ uneven


@faulty("uneven", ranks=(3,))
def fewer_batches_on_a_rank(rank: int, size: int) -> None:
    samples = torch.arange(15.0)[rank::size]  # 4, 4, 4 and 3
    for sample in samples:
        gradient = sample * 2
        dist.all_reduce(gradient)  # wrong


@right
def as_many_batches_as_the_fewest(rank: int, size: int) -> None:
    samples = torch.arange(15.0)[rank::size]
    fewest = torch.tensor(len(samples))
    dist.all_reduce(fewest, dist.ReduceOp.MIN)
    for sample in samples[: int(fewest)]:
        gradient = sample * 2
        dist.all_reduce(gradient)


def _average(value: float) -> float:
    total = torch.tensor(value)
    dist.all_reduce(total)
    return float(total)


@faulty("uneven", ranks=(2,))
def averages_twice_in_fewer_steps(rank: int, size: int) -> None:
    for step in range(3 + (rank != 2)):
        _average(step)  # wrong
        _average(rank)


@right
def averages_alike_from_other_lines(rank: int, size: int) -> None:
    for step in range(3):
        if rank == 0 and step == 0:
            assert _average(1.0) == size
        else:
            _average(1.0)


@faulty("uneven", ranks=(1,))
def ddp_with_fewer_batches(rank: int, size: int) -> None:
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    for _ in range(3 if rank == 1 else 5):
        model(torch.ones(4, 2)).sum().backward()  # wrong


@right
def ddp_with_equal_batches(rank: int, size: int) -> None:
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    for _ in range(5):
        model(torch.ones(4 + rank, 2)).sum().backward()


@faulty("uneven", ranks=(3,))
def stops_early_by_its_own_loss(rank: int, size: int) -> None:
    for step in range(5):
        loss = torch.tensor(1 / (1 + step + rank))
        mean = loss / size
        dist.all_reduce(mean)  # wrong
        if loss < 0.15:  # on rank 3 in step 3
            break


@right
def stops_early_by_the_mean_loss(rank: int, size: int) -> None:
    for step in range(5):
        loss = torch.tensor(1 / (1 + step + rank))
        mean = loss / size
        dist.all_reduce(mean)
        if mean < 0.3:
            break


@faulty("uneven", ranks=(0,))
def trains_until_its_own_loss_is_small(rank: int, size: int) -> None:
    loss = torch.tensor(2.0 ** (rank + 2))
    while loss > 1:
        gradient = loss / 2
        dist.all_reduce(gradient)  # wrong
        loss /= 2


@right
def trains_until_every_loss_is_small(rank: int, size: int) -> None:
    loss = torch.tensor(2.0 ** (rank + 2))
    worst = loss.clone()
    while worst > 1:
        loss /= 2
        worst = loss.clone()
        dist.all_reduce(worst, dist.ReduceOp.MAX)


# ------------------------------------------------------------------------------------------- group


@faulty("group", ranks=(3,))
def group_made_by_its_members_only(rank: int, size: int) -> None:
    trio = [0, 1, 2]
    if rank in trio:
        dist.new_group(trio)  # wrong
    everybody = dist.new_group()
    dist.all_reduce(torch.ones(2), group=everybody)


@right
def group_made_by_everybody(rank: int, size: int) -> None:
    trio = [0, 1, 2]
    dist.new_group(trio)
    everybody = dist.new_group()
    dist.all_reduce(torch.ones(2), group=everybody)


@faulty("group", ranks=(2,))
def groups_made_in_another_order(rank: int, size: int) -> None:
    pairs = [[0, 1], [2, 3]]
    if rank == 2:  # like the order of a set of names
        pairs.reverse()
    groups = {tuple(pair): dist.new_group(pair) for pair in pairs}  # wrong
    own = groups[0, 1] if rank < 2 else groups[2, 3]
    dist.all_reduce(torch.ones(2), group=own)


@right
def groups_made_in_the_same_order(rank: int, size: int) -> None:
    pairs = [[2, 3], [0, 1]]
    groups = {tuple(pair): dist.new_group(pair) for pair in sorted(pairs)}
    own = groups[0, 1] if rank < 2 else groups[2, 3]
    dist.all_reduce(torch.ones(2), group=own)


@faulty("group", ranks=(1,))
def group_with_members_of_its_own_mind(rank: int, size: int) -> None:
    slow = 1 if rank == 1 else 3  # by its own clock
    quick = [each for each in range(size) if each != slow]
    group = dist.new_group(quick)  # wrong
    if rank in quick:
        dist.all_reduce(torch.ones(2), group=group)


@right
def group_with_members_told_by_one(rank: int, size: int) -> None:
    slow = torch.tensor(1 if rank == 1 else 3)
    dist.broadcast(slow, src=0)
    quick = [each for each in range(size) if each != slow]
    group = dist.new_group(quick)
    if rank in quick:
        dist.all_reduce(torch.ones(2), group=group)


@faulty("group", ranks=(3,))
def no_member_and_calls(rank: int, size: int) -> None:
    trio = dist.new_group([0, 1, 2])
    score = torch.tensor([float(rank)])
    dist.all_reduce(score, group=trio)  # wrong
    dist.barrier()


@right
def no_member_and_does_not_call(rank: int, size: int) -> None:
    trio = dist.new_group([0, 1, 2])
    score = torch.tensor([float(rank)])
    if dist.get_rank(trio) >= 0:
        dist.all_reduce(score, group=trio)
    dist.barrier()


@faulty("group")
def group_made_in_its_own_branch(rank: int, size: int) -> None:
    if rank % 2 == 0:
        even = dist.new_group([0, 2])  # wrong
        dist.all_reduce(torch.ones(2), group=even)
    else:
        odd = dist.new_group([1, 3])  # wrong
        dist.all_reduce(torch.ones(3), group=odd)


@right
def groups_made_before_the_branch(rank: int, size: int) -> None:
    even = dist.new_group([0, 2])
    odd = dist.new_group([1, 3])
    own = even if rank % 2 == 0 else odd
    total = torch.ones(2)
    dist.all_reduce(total, group=own)
    assert total.tolist() == [2, 2]


# --------------------------------------------------------------------------------------------- p2p


@faulty("p2p", ranks=(0, 1))
def receives_another_tag(rank: int, size: int) -> None:
    if rank == 0:
        dist.send(torch.ones(4), dst=1, tag=1)  # wrong
    elif rank == 1:
        dist.recv(torch.empty(4), src=0, tag=10)  # wrong


@right
def receives_the_same_tag(rank: int, size: int) -> None:
    if rank == 0:
        dist.send(torch.ones(4), dst=1, tag=10)
    elif rank == 1:
        dist.recv(torch.empty(4), src=0, tag=10)


@faulty("p2p", ranks=(0, 1))
def receives_from_the_wrong_side(rank: int, size: int) -> None:
    if rank == 0:
        dist.send(torch.ones(4), dst=rank + 1)
    elif rank == 1:
        dist.recv(torch.empty(4), src=rank + 1)  # wrong


@right
def receives_from_the_right_side(rank: int, size: int) -> None:
    if rank == 0:
        dist.send(torch.ones(4), dst=rank + 1)
    elif rank == 1:
        dist.recv(torch.empty(4), src=rank - 1)


@faulty("p2p", ranks=(0, 1))
def sends_more_often_than_is_received(rank: int, size: int) -> None:
    chunks = torch.arange(6.0).chunk(3)
    if rank == 0:
        works = [dist.isend(chunk, dst=1) for chunk in chunks]  # wrong
        _wait(*works[:2])
    elif rank == 1:
        for _ in range(2):
            dist.recv(torch.empty(2), src=0)


@right
def sends_as_often_as_is_received(rank: int, size: int) -> None:
    chunks = torch.arange(6.0).chunk(3)
    if rank == 0:
        _wait(*[dist.isend(chunk, dst=1) for chunk in chunks])
    elif rank == 1:
        for _ in range(3):
            dist.recv(torch.empty(2), src=0)


@faulty("p2p", ranks=(0, 3))
def receives_from_a_rank_without_data(rank: int, size: int) -> None:
    parts = torch.arange(6.0).chunk(3)  # three parts, for four ranks
    if rank == 0:
        for other in range(1, size):
            dist.recv(torch.empty(2), src=other)  # wrong
    elif rank < len(parts):
        dist.send(parts[rank], dst=0)


@right
def receives_from_ranks_with_data(rank: int, size: int) -> None:
    parts = torch.arange(6.0).chunk(3)
    if rank == 0:
        for other in range(1, len(parts)):
            dist.recv(torch.empty(2), src=other)
    elif rank < len(parts):
        dist.send(parts[rank], dst=0)


@faulty("p2p", ranks=(0, 1))
def receives_integers_as_floats(rank: int, size: int) -> None:
    if rank == 0:
        dist.send(torch.arange(4, dtype=torch.int32), dst=1)  # wrong
    elif rank == 1:
        dist.recv(torch.empty(4), src=0)  # wrong


@right
def receives_integers(rank: int, size: int) -> None:
    if rank == 0:
        dist.send(torch.arange(4, dtype=torch.int32), dst=1)
    elif rank == 1:
        numbers = torch.empty(4, dtype=torch.int32)
        dist.recv(numbers, src=0)
        assert numbers.tolist() == [0, 1, 2, 3]


@faulty("p2p", ranks=(0, 1))
def receives_into_too_little(rank: int, size: int) -> None:
    if rank == 0:
        dist.send(torch.ones(8), dst=1)  # wrong
    elif rank == 1:
        dist.recv(torch.empty(4), src=0)  # wrong


@right
def receives_into_enough(rank: int, size: int) -> None:
    if rank == 0:
        dist.send(torch.ones(8), dst=1)
    elif rank == 1:
        dist.recv(torch.empty(2, 4), src=0)


@faulty("p2p", ranks=(0, 1))
def receives_into_too_much(rank: int, size: int) -> None:
    batch = torch.ones(3 if rank == 0 else 4, 2)  # the last batch is smaller
    if rank == 0:
        dist.send(batch, dst=1)  # wrong
    elif rank == 1:
        dist.recv(batch, src=0)  # wrong


@right
def receives_into_what_was_told(rank: int, size: int) -> None:
    if rank == 0:
        dist.send(torch.tensor([3]), dst=1)
        dist.send(torch.ones(3, 2), dst=1)
    elif rank == 1:
        rows = torch.empty(1, dtype=torch.int64)
        dist.recv(rows, src=0)
        dist.recv(torch.empty(int(rows), 2), src=0)


@faulty("p2p", ranks=(0, 1))
def receives_tags_in_another_order(rank: int, size: int) -> None:
    if rank == 0:
        for tag in (1, 2):
            dist.send(torch.ones(2), dst=1, tag=tag)  # wrong
    elif rank == 1:
        for tag in (2, 1):
            dist.recv(torch.empty(2), src=0, tag=tag)  # wrong


@right
def receives_tags_in_the_same_order(rank: int, size: int) -> None:
    if rank == 0:
        for tag in (1, 2):
            dist.send(torch.ones(2), dst=1, tag=tag)
    elif rank == 1:
        for tag in (1, 2):
            dist.recv(torch.empty(2), src=0, tag=tag)


# ---------------------------------------------------------------------------------------- deadlock


@faulty("deadlock", ranks=(0, 1), size=2)
def both_send_first(rank: int, size: int) -> None:
    dist.send(torch.ones(4), dst=1 - rank)  # wrong
    dist.recv(torch.empty(4), src=1 - rank)


@right
def one_sends_first(rank: int, size: int) -> None:
    peer = rank ^ 1
    for sends in (rank < peer, rank > peer):
        if sends:
            dist.send(torch.ones(4), dst=peer)
        else:
            dist.recv(torch.empty(4), src=peer)


@faulty("deadlock", ranks=(0, 1, 2, 3))
def ring_of_sends(rank: int, size: int) -> None:
    dist.send(torch.ones(4), dst=(rank + 1) % size)  # wrong
    dist.recv(torch.empty(4), src=(rank - 1) % size)


@right
def ring_that_one_rank_opens(rank: int, size: int) -> None:
    if rank == 0:
        dist.recv(torch.empty(4), src=size - 1)
    dist.send(torch.ones(4), dst=(rank + 1) % size)
    if rank > 0:
        dist.recv(torch.empty(4), src=rank - 1)


@faulty("deadlock", ranks=(0, 1), size=2)
def both_receive_first(rank: int, size: int) -> None:
    halo = torch.empty(4)
    dist.recv(halo, src=1 - rank)  # wrong
    dist.send(torch.ones(4), dst=1 - rank)


@right
def both_receive_without_blocking(rank: int, size: int) -> None:
    halo = torch.empty(4)
    work = dist.irecv(halo, src=rank ^ 1)
    dist.send(torch.ones(4), dst=rank ^ 1)
    _wait(work)
    assert halo.tolist() == [1] * 4


@faulty("deadlock", ranks=(0, 1))
def barrier_against_receive(rank: int, size: int) -> None:
    if rank == 1:
        dist.recv(torch.empty(4), src=0)  # wrong
    dist.barrier()  # wrong
    if rank == 0:
        dist.send(torch.ones(4), dst=1)


@right
def barrier_after_receive(rank: int, size: int) -> None:
    if rank == 0:
        dist.send(torch.ones(4), dst=1)
    if rank == 1:
        dist.recv(torch.empty(4), src=0)
    dist.barrier()


@faulty("deadlock", ranks=(1, 2))
def groups_used_crosswise(rank: int, size: int) -> None:
    upper, lower = dist.new_group([0, 1, 2]), dist.new_group([1, 2, 3])
    row = torch.ones(2)
    if rank == 2:
        dist.all_reduce(row, group=lower)  # wrong
        dist.all_reduce(row, group=upper)
        return
    if rank < 3:
        dist.all_reduce(row, group=upper)  # wrong
    if rank > 0:
        dist.all_reduce(row, group=lower)


@right
def groups_used_straight(rank: int, size: int) -> None:
    upper, lower = dist.new_group([0, 1, 2]), dist.new_group([1, 2, 3])
    row = torch.ones(2)
    if rank < 3:
        dist.all_reduce(row, group=upper)
    if rank > 0:
        dist.all_reduce(row, group=lower)


@faulty("deadlock", ranks=(0, 1, 2))
def members_alone_make_groups_in_a_circle(rank: int, size: int) -> None:
    pairs = {0: ([0, 1], [0, 2]), 1: ([1, 2], [0, 1]), 2: ([0, 2], [1, 2]), 3: ()}
    for pair in pairs[rank]:
        dist.new_group(pair, use_local_synchronization=True)  # wrong


@faulty("deadlock", ranks=(0, 2), size=3)
def odd_ring_by_parity(rank: int, size: int) -> None:
    after, before = (rank + 1) % size, (rank - 1) % size
    for peer in (after, before) if rank % 2 == 0 else (before, after):
        if rank % 2 == 0:  # and so is the neighbour across the seam
            dist.send(torch.ones(4), dst=peer)  # wrong
            dist.recv(torch.empty(4), src=peer)
        else:
            dist.recv(torch.empty(4), src=peer)
            dist.send(torch.ones(4), dst=peer)


@right
def odd_ring_by_number(rank: int, size: int) -> None:
    trio = dist.new_group([0, 1, 2])
    if rank == 3:
        return
    for peer in sorted({0, 1, 2} - {rank}):
        if rank < peer:
            dist.send(torch.ones(4), dst=peer, group=trio)
            dist.recv(torch.empty(4), src=peer, group=trio)
        else:
            dist.recv(torch.empty(4), src=peer, group=trio)
            dist.send(torch.ones(4), dst=peer, group=trio)


# ----------------------------------------------------------------- right, whatever they look like


@right
def ping_pong(rank: int, size: int) -> None:
    ball = torch.zeros(1)
    for turn in range(6):
        if rank % 2 == turn % 2:
            ball += 1
            dist.send(ball, dst=rank ^ 1)
        else:
            dist.recv(ball, src=rank ^ 1)
    assert ball == 6


@right
def ring_in_batches(rank: int, size: int) -> None:
    given = torch.full((4,), float(rank))
    for _ in range(size):
        taken = torch.empty(4)
        there = dist.P2POp(dist.isend, given, (rank + 1) % size)
        here = dist.P2POp(dist.irecv, taken, (rank - 1) % size)
        _wait(*dist.batch_isend_irecv([there, here]))
        given = taken
    assert given.tolist() == [rank] * 4


@right
def exchanges_and_waits_in_any_order(rank: int, size: int) -> None:
    peer = rank ^ 1
    large, small = torch.empty(1000), torch.empty(2, dtype=torch.int64)
    works = [
        dist.irecv(small, peer, tag=7),
        dist.isend(torch.full((1000,), 0.5), peer),
        dist.irecv(large, peer),
        dist.isend(torch.tensor([rank, peer]), peer, tag=7),
    ]
    dist.barrier()
    _wait(*(works if rank % 2 else works[::-1]))
    assert small.tolist() == [peer, rank]
    assert large.sum() == 500


@right
def receives_from_whoever_comes(rank: int, size: int) -> None:
    if rank:
        dist.send(torch.tensor([float(rank)]), dst=0, tag=3)
        return
    came = set()
    for _ in range(size - 1):
        number = torch.empty(1)
        source = dist.recv(number, tag=3)
        assert number == source
        came.add(source)
    assert came == {1, 2, 3}


@right
def receives_a_size_from_anybody_then_its_data(rank: int, size: int) -> None:
    for _ in range(20):
        if rank:
            dist.send(torch.tensor([10 * rank]), dst=0)
            dist.send(torch.full((10 * rank,), float(rank)), dst=0)
            continue
        for _ in range(size - 1):
            count = torch.empty(1, dtype=torch.int64)
            source = dist.recv(count)
            data = torch.empty(int(count))
            dist.recv(data, src=source)
            assert data.tolist() == [source] * 10 * source


@right
def receives_tags_as_it_likes(rank: int, size: int) -> None:
    if rank == 0:
        _wait(*[dist.isend(torch.tensor([float(tag)]), 1, tag=tag) for tag in (1, 2, 3)])
    elif rank == 1:
        for tag in (3, 1, 2):
            number = torch.empty(1)
            dist.recv(number, src=0, tag=tag)
            assert number == tag


@right
def rows_and_then_columns(rank: int, size: int) -> None:
    rows = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    columns = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    for _ in range(3):
        total = torch.tensor([float(rank)])
        dist.all_reduce(total, group=rows[rank // 2])
        dist.all_reduce(total, group=columns[rank % 2])
        assert total == 6


@right
def comes_late(rank: int, size: int) -> None:
    dist.barrier()
    if rank == 1:
        compute()  # reads its data, as the other ranks have
    total = torch.ones(2)
    dist.all_reduce(total)
    if rank == 2:
        compute()
        dist.send(total, dst=3)
    elif rank == 3:
        dist.recv(total, src=2)


@right
def a_thread_has_its_own_group(rank: int, size: int) -> None:
    own = dist.new_group()

    def largest() -> float:
        found = torch.tensor([float(rank)])
        for _ in range(20):
            dist.all_reduce(found, dist.ReduceOp.MAX, group=own)
        return float(found)

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(largest)
        for _ in range(20):
            dist.all_reduce(torch.ones(4))
        assert found.result() == 3


@right
def a_thread_waits_for_orders(rank: int, size: int) -> None:
    orders, done = dist.new_group(), torch.empty(1)
    if rank == 0:
        dist.recv(done, src=1)
        for other in range(1, size):
            dist.send(done, dst=other, group=orders)
        return
    with ThreadPoolExecutor(1) as pool:
        ordered = pool.submit(dist.recv, torch.empty(1), 0, orders)
        compute()  # computes in the meantime
        if rank == 1:
            dist.send(torch.ones(1), dst=0)
        assert ordered.result() == 0


@right
def leaders_reduce_for_their_pairs(rank: int, size: int) -> None:
    pairs = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    leaders = dist.new_group([0, 2])
    total, leader = torch.ones(3), rank - rank % 2
    dist.reduce(total, dst=leader, group=pairs[rank // 2])
    if rank == leader:
        dist.all_reduce(total, group=leaders)
    dist.broadcast(total, src=leader, group=pairs[rank // 2])
    assert total.tolist() == [4, 4, 4]


@right
def waits_much_later(rank: int, size: int) -> None:
    tensors = [torch.full((4,), float(each)) for each in range(6)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    dist.barrier()
    for _ in range(5 * rank):
        torch.ones(50, 50).matmul(torch.ones(50, 50))
    dist.barrier()
    _wait(*(works if rank % 2 else works[::-1]))
    assert [float(tensor[0]) for tensor in tensors] == [0, 4, 8, 12, 16, 20]


@right
def pipeline_of_stages(rank: int, size: int) -> None:
    for batch in range(4):
        activations = torch.full((2, 3), float(batch))
        if rank > 0:
            dist.recv(activations, src=rank - 1)
        activations += 1
        if rank < size - 1:
            dist.send(activations, dst=rank + 1)
        else:
            assert activations[0, 0] == batch + size


@right
def uneven_batches_in_a_join(rank: int, size: int) -> None:
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    with model.join():
        for _ in range(2 + rank):
            model(torch.ones(4, 2)).sum().backward()
    dist.barrier()


@right
def catches_an_error_of_its_own(rank: int, size: int) -> None:
    dist.barrier()
    if rank == 1:
        with suppress(ValueError):
            dist.send(torch.ones(1), dst=rank)  # to itself, which torch rejects immediately
        with suppress(RuntimeError):
            torch.ones(2) + torch.ones(3)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == size


@right
def falls_back_from_avg(rank: int, size: int) -> None:
    for _ in range(2):
        mean = torch.full((2,), float(size * rank))
        try:
            dist.all_reduce(mean, dist.ReduceOp.AVG)
        except (RuntimeError, ValueError):  # gloo doesn't support it
            dist.all_reduce(mean, dist.ReduceOp.SUM)
            mean /= size
        assert mean.tolist() == [6, 6]


@right
def groups_with_different_numbers_of_calls(rank: int, size: int) -> None:
    halves = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    half = rank // 2
    for _ in range(2 + 5 * half):
        total = torch.ones(2 + half)
        dist.all_reduce(total, group=halves[half])
        assert total[0] == 2
    dist.barrier()


@right
def groups_that_only_members_make(rank: int, size: int) -> None:
    pair = [0, 1] if rank < 2 else [2, 3]
    own = dist.new_group(pair, use_local_synchronization=True)
    total = torch.tensor([float(rank)])
    dist.all_reduce(total, group=own)
    assert total == sum(pair)
    dist.all_reduce(total)


@right
def groups_of_a_mesh(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    total = torch.tensor([float(rank)])
    dist.all_reduce(total, group=mesh.get_group("model"))
    dist.all_reduce(total, group=mesh.get_group("data"))
    assert total == 6


@right
def destroys_its_group_and_leaves(rank: int, size: int) -> None:
    total = torch.ones(2)
    dist.all_reduce(total)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 3:
        total.mul_(2)


@right
def sends_by_keywords(rank: int, size: int) -> None:
    world, box = dist.distributed_c10d._get_default_group(), torch.tensor([float(rank)])
    if rank == 0:
        world.send([box], dstRank=1, tag=3).wait()
    elif rank == 1:
        world.recv([box], srcRank=0, tag=3).wait()
        assert box == 0


@right
def a_group_that_one_rank_is_refused(rank: int, size: int) -> None:
    if rank == 0:
        with suppress(ValueError, RuntimeError):
            dist.new_group([0, size + 95])
    compute() if rank == 1 else None
    dist.barrier()


@right
def a_receive_that_is_refused_and_made_again(rank: int, size: int) -> None:
    box = torch.zeros(3, 2)
    if rank == 0:
        dist.send(torch.ones(3, 2), 1)
    elif rank == 1:
        compute()  # the send has been recorded
        with suppress(RuntimeError, ValueError):
            dist.recv(box.t(), 0)
        dist.recv(box, 0)
        assert box.sum() == 6


@right
def gives_up_a_barrier_for_which_others_do_not_come(rank: int, size: int) -> None:
    """Its own group is unusable then, but those of the other ranks aren't."""
    pair = dist.new_group([0, 1])
    if rank == 0:
        with suppress(RuntimeError):
            dist.monitored_barrier(pair, timeout=timedelta(seconds=1))
        dist.send(torch.ones(1), 1)
    elif rank == 1:
        dist.recv(torch.ones(1), 0)
