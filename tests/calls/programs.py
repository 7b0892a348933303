"""Programs with a mistake, each with its repair, and right programs that look wrong.

Four ranks run them with their group ready. A program with a mistake is right if ``right`` is True.
The lines at fault end in ``# wrong``. Based on mistakes reported in PyTorch's issues and forum, and
on the classes of the MPI Bugs Initiative. ``make recordings`` records the notes of all programs.
"""

from __future__ import annotations

import mmap
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from helpers import wait_until
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import _get_default_group
from torch.distributed.nn import functional as autograd_functional
from torch.nn.functional import pad

# Newer releases renamed these and warn about the old names.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
SIZE = 4
PAIRS = [0, 1], [2, 3]


@dataclass(frozen=True)
class Mistake:
    """A program with a mistake.

    Attributes:
        kind: Kind of the finding.
        ranks: Ranks that must be named; empty for any.
        program: Function that every rank runs.
        real: True if the tests run it on real ranks, too.
    """

    kind: str
    ranks: tuple[int, ...]
    program: Callable[[int, bool], None]
    real: bool

    @property
    def name(self) -> str:
        """Name of the program."""
        return self.program.__name__


MISTAKES: dict[str, Mistake] = {}
RIGHT: list[Callable[[int], None]] = []


def mistake(
    kind: str, *ranks: int, real: bool = False
) -> Callable[[Callable[[int, bool], None]], Callable[[int, bool], None]]:
    """Register a program with a mistake."""

    def register(program: Callable[[int, bool], None]) -> Callable[[int, bool], None]:
        MISTAKES[program.__name__] = Mistake(kind, ranks, program, real)
        return program

    return register


def right_program(program: Callable[[int], None]) -> Callable[[int], None]:
    """Register a right program."""
    RIGHT.append(program)
    return program


POLLS = mmap.mmap(-1, 8)
"""Number of polls by the launcher, in memory shared with the ranks of the running world."""


def poll_count() -> int:
    """Return the number of polls."""
    return int.from_bytes(POLLS[:8], "little")


def compute(polls: int = 3) -> None:
    """Delay a rank until the launcher has polled several times without a new note."""
    first = poll_count()
    assert wait_until(lambda: poll_count() > first + polls)


def _wait(*works: dist.Work | None) -> None:
    for work in works:
        if work is not None:
            work.wait()


# ------------------------------------------------------------------------------------------- call


@mistake("call", 0, real=True)
def first_rank_broadcasts_what_others_reduce(rank: int, right: bool) -> None:
    loss = torch.ones(1)
    if rank == 0 and not right:
        dist.broadcast(loss, src=0)  # wrong
    else:
        dist.all_reduce(loss)


@mistake("call", 3)
def one_rank_skips_the_warm_up(rank: int, right: bool) -> None:
    """One rank found a checkpoint, and the other ranks did not."""
    weight = torch.full((4,), float(rank))
    resumed = torch.tensor([int(rank == 3)])
    if right:
        dist.all_reduce(resumed, dist.ReduceOp.MIN)
    if not resumed.item():
        for _ in range(2):
            dist.all_reduce(torch.ones(1))  # wrong
    dist.broadcast(weight, src=0)  # wrong


# ------------------------------------------------------------------------------------------ shape


@mistake("shape", 3, real=True)
def last_batch_is_shorter(rank: int, right: bool) -> None:
    for step in range(3):
        losses = torch.ones(3 if rank == 3 and step == 2 else 4)
        total = losses.sum() if right else losses
        work = dist.all_reduce(total, async_op=True)  # wrong
        if step < 2 or right:
            work.wait()
    if not right:
        compute(10_000)  # or else gloo would fail before every rank has arrived


@mistake("shape")
def predictions_of_uneven_lengths_are_gathered(rank: int, right: bool) -> None:
    mine = torch.arange(rank + 1)
    if right:
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(SIZE)]
        dist.all_gather(lengths, torch.tensor([len(mine)]))
        mine = pad(mine, (0, max(map(int, lengths)) - len(mine)))
    parts = [torch.empty_like(mine) for _ in range(SIZE)]
    dist.all_gather(parts, mine)  # wrong
    assert not right or [int(part.max()) for part in parts] == list(range(SIZE))


@mistake("shape")
def chunks_of_ten_are_scattered_to_four(rank: int, right: bool) -> None:
    """``chunk`` makes parts of 3, 3, 3 and 1."""
    mine = torch.zeros(3)
    parts = list(torch.arange(12.0 if right else 10.0).chunk(SIZE)) if rank == 0 else None
    dist.scatter(mine, parts, src=0)  # wrong
    assert not right or mine[0] == 3 * rank


# ------------------------------------------------------------------------------------------ dtype


@mistake("dtype", 1, real=True)
def one_loss_is_an_integer(rank: int, right: bool) -> None:
    loss = torch.tensor([2], dtype=torch.int32 if rank == 1 else torch.float32)
    loss = loss.float() if right else loss
    dist.all_reduce(loss)  # wrong


# -------------------------------------------------------------------------------------- reduce_op


@mistake("reduce_op", 2, real=True)
def one_rank_adds_flags_up(rank: int, right: bool) -> None:
    overflow = torch.full((1,), float(rank == 2))
    op = dist.ReduceOp.SUM if rank == 2 and not right else dist.ReduceOp.MAX
    dist.all_reduce(overflow, op=op)  # wrong


if torch.__version__ >= "2.10":  # kernels can read the ReduceOp since 2.10

    @mistake("reduce_op", 2, real=True)
    def one_rank_takes_the_greatest_of_all(rank: int, right: bool) -> None:
        """Make calls that torch makes from C++."""
        op = "max" if rank == 2 or right else "sum"
        functional.all_reduce(torch.ones(4), op, _get_default_group()) + 0  # wrong


# ------------------------------------------------------------------------------------------- root


@mistake("root", 1, real=True)
def one_rank_reduces_to_another(rank: int, right: bool) -> None:
    dist.reduce(torch.ones(1), dst=SIZE - 1 if rank == 1 or right else 0)  # wrong


@mistake("root", 2)
def one_rank_of_a_subgroup_takes_itself_for_the_root(rank: int, right: bool) -> None:
    """The root is given once as a global rank and once as a group rank."""
    group = dist.new_group([1, 2, 3])
    weight = torch.full((4,), float(rank))
    if rank == 2 and right:
        dist.broadcast(weight, group_src=0, group=group)
    elif rank > 0:
        dist.broadcast(weight, src=2 if rank == 2 else 1, group=group)  # wrong


# ----------------------------------------------------------------------------------------- splits


@mistake("splits", 1, 2)
def one_rank_gives_more_than_is_taken(rank: int, right: bool) -> None:
    gives, takes = [1] * SIZE, [1] * SIZE
    gives[1] = 3 if rank == 2 else 1
    takes[2] = 3 if rank == 1 and right else 1
    received = torch.zeros(sum(takes), 4)
    dist.all_to_all_single(received, torch.ones(sum(gives), 4), takes, gives)  # wrong


@mistake("splits", real=True)
def every_rank_takes_what_it_gives(rank: int, right: bool) -> None:
    """Tokens for experts: a rank with more tokens expects the same number from every rank."""
    counts = [rank + 1] * SIZE
    takes = torch.tensor(counts)
    if right:
        dist.all_to_all_single(takes, torch.tensor(counts))
    received = torch.zeros(int(takes.sum()))
    dist.all_to_all_single(received, torch.ones(sum(counts)), takes.tolist(), counts)  # wrong


# --------------------------------------------------------------------------------------- argument


@mistake("argument", real=True)
def root_is_one_past_the_last_rank(rank: int, right: bool) -> None:
    dist.broadcast(torch.ones(4), src=SIZE - right)  # wrong


@mistake("argument", 0, real=True)
def pipeline_sends_before_its_first_stage(rank: int, right: bool) -> None:
    gradient = torch.zeros(4)
    if rank < SIZE - 1:
        dist.recv(gradient, src=rank + 1)
    if rank >= right:
        dist.send(gradient + 1, dst=rank - 1)  # wrong


@mistake("argument")
def list_has_no_place_for_the_last_rank(rank: int, right: bool) -> None:
    """Written for a world of three."""
    parts = [torch.zeros(2) for _ in range(3 + right)]
    dist.all_gather(parts, torch.ones(2))  # wrong


@mistake("group", real=True)
def number_in_the_group_for_one_in_the_world(rank: int, right: bool) -> None:
    group = dist.new_group([2, 3])
    if rank >= 2:
        dist.broadcast(torch.ones(4), src=2 if right else 0, group=group)  # wrong
    dist.barrier()


# ---------------------------------------------------------------------------------------- buffers


@mistake("buffers", 0, 1, 2, 3, real=True)
def one_tensor_for_what_all_give(rank: int, right: bool) -> None:
    mine = torch.full((2,), float(rank))
    parts = list(torch.zeros(SIZE, 2).unbind()) if right else [torch.zeros(2)] * SIZE
    dist.all_gather(parts, mine)  # wrong
    assert torch.stack(parts).sum() == (12 if right else 24)


@mistake("buffers", 0, 1, 2, 3)
def gathers_into_windows_that_overlap(rank: int, right: bool) -> None:
    """Right windows are columns: their elements alternate."""
    steps = torch.zeros(4 * SIZE + 1)
    columns = torch.zeros(4, SIZE)
    windows = [steps[3 * other :][:4] for other in range(SIZE)]
    if right:
        windows = list(columns.unbind(1))
    dist.all_gather(windows, torch.full((4,), float(rank)))  # wrong
    assert not right or columns.equal(torch.arange(float(SIZE)).expand(4, SIZE))
    assert windows[0][0] == 0  # the part that nobody shares
    assert windows[0][-1] == (0 if right else 1)


@mistake("buffers", 3)
def receives_two_messages_into_slices_that_overlap(rank: int, right: bool) -> None:
    if rank == 3:
        halo = torch.zeros(8)
        slices = [halo[:4], halo[4:] if right else halo[3:7]]
        receives = [dist.P2POp(dist.irecv, part, src) for src, part in enumerate(slices)]
        _wait(*dist.batch_isend_irecv(receives))  # wrong
        assert halo.sum() > 0
    elif rank < 2:
        dist.send(torch.ones(4), 3)


@mistake("buffers", 0, real=True)
def counts_on_in_the_buffer_that_it_sends(rank: int, right: bool) -> None:
    step = torch.zeros(8)
    if rank == 0:
        sending = dist.isend(step, 1)  # wrong
        if right:
            _wait(sending)
        step.add_(1)
        _wait(*[sending] * (not right))
    elif rank == 1:
        dist.recv(step, 0)


@mistake("buffers")
def sums_slices_that_overlap(rank: int, right: bool) -> None:
    window = torch.ones(12)
    calls = [dist.all_reduce(window[:8], async_op=True)]  # wrong
    if right:
        _wait(*calls)
    calls.append(dist.all_reduce(window[4:], async_op=True))  # wrong
    _wait(*calls[right:])


@mistake("buffers", 0)
def forgets_its_handle(rank: int, right: bool) -> None:
    summing = dist.all_reduce(torch.ones(1), async_op=True)  # wrong
    if rank == 0 and right:
        while not summing.is_completed():
            pass
    elif rank != 0:
        summing.wait()
    dist.barrier()


@mistake("buffers", 0, 1, 2, 3)
def sums_a_column_in_place(rank: int, right: bool) -> None:
    column = torch.ones(4, 4)[:, rank % 2]
    dist.all_reduce(column.contiguous() if right else column)  # wrong


@mistake("buffers", 2, real=True)
def one_rank_receives_into_a_column(rank: int, right: bool) -> None:
    column = torch.zeros(4, 4)[:, 1] if rank == 2 and not right else torch.ones(4)
    dist.broadcast(column, src=0)  # wrong


# ------------------------------------------------------------------------------------------ absent


@mistake("absent", 3, real=True)
def leaves_without_data(rank: int, right: bool) -> None:
    parts = torch.arange(6.0).chunk(3)  # three parts, for four ranks
    if rank < len(parts) or right:
        dist.barrier()  # wrong


@mistake("absent", 2, real=True)
def refuses_a_sample(rank: int, right: bool) -> None:
    samples = torch.tensor([1.0, -1.0 if rank == 2 else 2.0])
    if samples.min() < 0 and not right:
        raise ValueError("a sample is negative")  # wrong
    dist.all_reduce(samples[samples >= 0].sum() if right else samples)


@mistake("absent", 1, real=True)
def leaves_by_os_exit(rank: int, right: bool) -> None:
    dist.broadcast(torch.ones(3), src=0)
    if rank == 1 and not right:
        os._exit(0)
    dist.all_reduce(torch.ones(3))  # wrong


@mistake("absent", 1, real=True)
def destroys_a_pair_while_others_go_on(rank: int, right: bool) -> None:
    pairs = [dist.new_group(pair) for pair in PAIRS]
    if rank == 1 and not right:
        try:
            next(iter(()))
        except StopIteration:
            dist.destroy_process_group(pairs[0])  # wrong
        dist.destroy_process_group()
        compute()
    elif rank < 2:
        dist.all_reduce(torch.ones(4), group=pairs[0])
    else:
        for _ in range(10):
            dist.all_reduce(torch.ones(4), group=pairs[1])
            compute(3 * (not right))


@mistake("absent", 1, real=True)
def destroys_after_an_error(rank: int, right: bool) -> None:
    try:
        for step in range(4):
            if rank == 1 and step == 2 and not right:
                raise ValueError("a sample is negative")  # wrong
            dist.all_reduce(torch.ones(4))
    finally:
        if rank == 1 and not right:
            dist.destroy_process_group()  # wrong
            compute()


# ------------------------------------------------------------------------------------------ uneven


@mistake("uneven", 3, real=True)
def fewer_batches_on_a_rank(rank: int, right: bool) -> None:
    samples = torch.arange(15.0)[rank::SIZE]  # 4, 4, 4 and 3
    fewest = torch.tensor(len(samples))
    if right:
        dist.all_reduce(fewest, dist.ReduceOp.MIN)
    for sample in samples[: int(fewest)]:
        dist.all_reduce(sample * 2)  # wrong


@mistake("uneven", 2)
def averages_twice_in_fewer_steps(rank: int, right: bool) -> None:
    def average(value: float) -> None:
        dist.all_reduce(torch.tensor(value))

    for step in range(3 + (rank != 2 and not right)):
        average(step)  # wrong
        average(rank)


# ------------------------------------------------------------------------------------------- group


@mistake("group", 3, real=True)
def group_made_by_its_members_only(rank: int, right: bool) -> None:
    trio = [0, 1, 2]
    if rank in trio or right:
        dist.new_group(trio)  # wrong
    everybody = dist.new_group()
    dist.all_reduce(torch.ones(2), group=everybody)


@mistake("group", 2, 3, real=True)
def groups_of_one_rank_made_by_a_half(rank: int, right: bool) -> None:
    half = dist.new_group([0, 1])
    if rank < 2:
        dist.new_subgroups(1, group=half)  # type: ignore[no-untyped-call]
    elif right:
        for other in (2, 3):
            dist.new_group([other])
    everybody = dist.new_group()  # wrong
    dist.all_reduce(torch.ones(2), group=everybody)


@mistake("group", 3, real=True)
def no_member_and_calls(rank: int, right: bool) -> None:
    trio = dist.new_group([0, 1, 2])
    if dist.get_rank(trio) >= 0 or not right:
        dist.all_reduce(torch.ones(1), group=trio)  # wrong
    dist.barrier()


@mistake("group")
def group_made_in_its_own_branch(rank: int, right: bool) -> None:
    if right:
        own = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])][rank % 2]
    elif rank % 2 == 0:
        own = dist.new_group([0, 2])  # wrong
    else:
        own = dist.new_group([1, 3])  # wrong
    dist.all_reduce(torch.ones(2), group=own)


@mistake("group", 1, 2, real=True)
def members_alone_have_made_different_numbers(rank: int, right: bool) -> None:
    """torch counts each rank's groups in the name of a group that only its members create."""
    if rank in {0, 3} or right:
        dist.new_group([0, 3], use_local_synchronization=not right)
    dist.new_group([*range(SIZE)], use_local_synchronization=not right)  # wrong


# --------------------------------------------------------------------------------------------- p2p


@mistake("p2p", 0, real=True)
def drops_the_handle_of_a_send(rank: int, right: bool) -> None:
    sending = [dist.isend(torch.ones(4), dst=1)] if rank == 0 else []  # wrong
    if not right:
        sending.clear()
    dist.barrier()
    if rank == 1:
        dist.recv(torch.empty(4), src=0)
    _wait(*sending)
    dist.barrier()


@mistake("p2p", 0, 1, 2, 3)
def forgets_the_handles_of_a_batch(rank: int, right: bool) -> None:
    there = dist.P2POp(dist.isend, torch.ones(4), (rank + 1) % SIZE)
    here = dist.P2POp(dist.irecv, torch.empty(4), (rank - 1) % SIZE)
    works = dist.batch_isend_irecv([there])  # wrong
    if not right:
        works.clear()
    dist.barrier()
    works += dist.batch_isend_irecv([here])
    _wait(*works)


@mistake("p2p", 0, 1, real=True)
def receives_another_tag(rank: int, right: bool) -> None:
    if rank == 0:
        dist.send(torch.ones(4), dst=1, tag=1)  # wrong
    elif rank == 1:
        dist.recv(torch.empty(4), src=0, tag=1 if right else 10)  # wrong


@mistake("p2p", 0, 1, real=True)
def sends_more_often_than_is_received(rank: int, right: bool) -> None:
    chunks = torch.arange(6.0).chunk(3)
    if rank == 0:
        works = [dist.isend(chunk, dst=1) for chunk in chunks]  # wrong
        _wait(*works[: 2 + right])
    elif rank == 1:
        for _ in range(2 + right):
            dist.recv(torch.empty(2), src=0)


@mistake("p2p", 0, 1)
def receives_into_too_little(rank: int, right: bool) -> None:
    if rank == 0:
        dist.send(torch.ones(8), dst=1)  # wrong
    elif rank == 1:
        dist.recv(torch.empty(2, 4) if right else torch.empty(4), src=0)  # wrong


@mistake("p2p", 0, 1)
def receives_tags_in_another_order(rank: int, right: bool) -> None:
    if rank == 0:
        for tag in (1, 2):
            dist.send(torch.ones(2), dst=1, tag=tag)  # wrong
    elif rank == 1:
        for tag in (1, 2) if right else (2, 1):
            dist.recv(torch.empty(2), src=0, tag=tag)  # wrong


# ---------------------------------------------------------------------------------------- deadlock


@mistake("deadlock", 0, 1, real=True)
def both_send_first(rank: int, right: bool) -> None:
    if rank > 1:
        return
    if rank == 1 and right:
        dist.recv(torch.empty(4), src=0)
    dist.send(torch.ones(4), dst=1 - rank)  # wrong
    if rank == 0 or not right:
        dist.recv(torch.empty(4), src=1 - rank)


@mistake("deadlock", 0, 1, real=True)
def barrier_against_receive(rank: int, right: bool) -> None:
    if rank == 0 and right:
        dist.send(torch.ones(4), dst=1)
    if rank == 1:
        dist.recv(torch.empty(4), src=0)  # wrong
    dist.barrier()  # wrong
    if rank == 0 and not right:
        dist.send(torch.ones(4), dst=1)


@mistake("deadlock", 0, 1, real=torch.__version__ >= "2.10")  # its wait isn't recorded before
def one_rank_waits_for_a_functional_collective(rank: int, right: bool) -> None:
    pair = [dist.new_group(pair) for pair in PAIRS][rank // 2]
    if rank == 0 or right:
        functional.all_reduce(torch.ones(4), "sum", pair) + 0  # wrong
    dist.barrier()  # wrong


@mistake("deadlock", 0, 1, real=True)
def one_rank_waits_for_futures(rank: int, right: bool) -> None:
    pair = [dist.new_group(pair) for pair in PAIRS][rank // 2]
    if rank == 0 or right:
        work = dist.all_reduce(torch.ones(4), group=pair, async_op=True)
        torch.futures.wait_all([work.get_future()])  # wrong
    dist.barrier()  # wrong


@mistake("deadlock", 0, 1, 2)
def members_alone_make_groups_in_a_circle(rank: int, right: bool) -> None:
    pairs = {0: ([0, 1], [0, 2]), 1: ([1, 2], [0, 1]), 2: ([0, 2], [1, 2]), 3: ()}
    for pair in pairs[rank] if not right else ():
        dist.new_group(pair, use_local_synchronization=True)  # wrong


# ------------------------------------------------------------------------- right, but look wrong


@right_program
def groups_that_only_members_make(rank: int) -> None:
    pair = [0, 1] if rank < 2 else [2, 3]
    own = dist.new_group(pair, use_local_synchronization=True)
    total = torch.tensor([float(rank)])
    dist.all_reduce(total, group=own)
    assert total == sum(pair)
    dist.all_reduce(total)


@right_program
def groups_of_one_rank(rank: int) -> None:
    """The halves create theirs at different times; a monitored barrier only warns non-members."""
    halves = [dist.new_group(pair) for pair in ([0, 1], [2, 3])]
    if rank < 2:
        dist.new_subgroups(1, group=halves[0])  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.monitored_barrier(halves[0])
    dist.barrier()
    if rank >= 2:
        mine, _ = dist.new_subgroups(1, group=halves[1])  # type: ignore[no-untyped-call]
        dist.all_reduce(torch.ones(1), group=mine)
    dist.barrier(dist.new_group([0, 1, 2, 3]))


@right_program
def handles_are_waited_for_later_and_in_other_orders(rank: int) -> None:
    gradients = [torch.ones(4 + number) for number in range(6)]
    works = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]
    loss = torch.ones(1)
    dist.all_reduce(loss)
    for work in reversed(works) if rank % 2 else works:
        work.wait()
    assert all(gradient.eq(SIZE).all() for gradient in gradients)


@right_program
def subgroups_go_their_own_ways(rank: int) -> None:
    """The halves make different calls, and two groups have the same members."""
    left, right_half, evens = (dist.new_group(ranks) for ranks in ([0, 1], [2, 3], [0, 2]))
    again = dist.new_group([2, 3])
    mine = torch.ones(2)
    if rank < 2:
        dist.all_reduce(mine, group=left)
        dist.broadcast(mine, src=1, group=left)
    else:
        dist.barrier(group=again)
        dist.broadcast(torch.ones(7), src=3, group=right_half)
        dist.all_reduce(mine.double(), dist.ReduceOp.MAX, group=again)
    if rank in {0, 2}:
        dist.all_reduce(mine, group=evens)
    dist.all_reduce(mine)


@right_program
def uneven_splits_that_fit(rank: int) -> None:
    """The first rank sends nothing; then only some ranks pass even splits explicitly."""
    rows = torch.full((rank * SIZE, 2), float(rank))
    received = torch.zeros(sum(range(SIZE)), 2)
    dist.all_to_all_single(received, rows, list(range(SIZE)), [rank] * SIZE)
    assert received[:, 0].tolist() == [source for source in range(SIZE) for _ in range(source)]
    splits = [1] * SIZE if rank % 2 else None
    dist.all_to_all_single(torch.zeros(SIZE), torch.ones(SIZE), splits, splits)


@right_program
def the_same_call_from_many_lines(rank: int) -> None:
    """The shapes differ, but the numbers of elements don't."""
    weight = torch.full((2, 3), float(rank))
    if rank == 0:
        dist.broadcast(weight, src=0)
    elif rank == 1:
        dist.broadcast(weight, 0, None)
    else:
        dist.broadcast(weight.view(-1), src=0, async_op=True).wait()
    assert not weight.any()
    if rank % 2:
        work = dist.all_reduce(weight, dist.ReduceOp.SUM, async_op=True)
        work.wait()
    else:
        dist.all_reduce(weight.view(6))


@right_program
def functional_collectives_bring_what_they_should(rank: int) -> None:
    """Calls work although their kernels are replaced."""
    world = _get_default_group()
    mine, total = torch.arange(4.0) + rank, torch.arange(4.0) * SIZE + sum(range(SIZE))
    assert torch.equal(functional.all_reduce(mine, "sum", world) + 0, total)
    gathered = torch.cat([torch.arange(4.0) + other for other in range(SIZE)])
    gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor
    assert torch.equal(gather(mine, 0, world) + 0, gathered)
    scatter = getattr(functional, "reduce_scatter_single", None) or functional.reduce_scatter_tensor
    assert torch.equal(scatter(mine, "sum", 0, world) + 0, total[rank : rank + 1])
    turned = functional.all_to_all_single(mine, None, None, world) + 0
    assert torch.equal(turned, torch.arange(float(SIZE)) + rank)
    first, second = functional.all_reduce_coalesced([mine, -mine], "sum", world)
    assert torch.equal(first + 0, total)
    assert torch.equal(second + 0, -total)
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (SIZE,))
    whole = DTensor.from_local(mine, mesh, [Shard(0)]).full_tensor()
    assert torch.equal(whole, gathered)


@right_program
def catches_an_error_of_its_own(rank: int) -> None:
    dist.barrier()
    if rank == 1:
        with suppress(ValueError):
            dist.send(torch.ones(1), dst=rank)  # to itself, which torch rejects immediately
        with suppress(RuntimeError):
            torch.ones(2) + torch.ones(3)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == SIZE


@right_program
def falls_back_from_avg(rank: int) -> None:
    for _ in range(2):
        mean = torch.full((2,), float(SIZE * rank))
        try:
            dist.all_reduce(mean, dist.ReduceOp.AVG)
        except (RuntimeError, ValueError):  # gloo doesn't support it
            dist.all_reduce(mean, dist.ReduceOp.SUM)
            mean /= SIZE
        assert mean.tolist() == [6, 6]


@right_program
def a_receive_that_is_refused_and_made_again(rank: int) -> None:
    box = torch.zeros(3, 2)
    if rank == 0:
        dist.send(torch.ones(3, 2), 1)
    elif rank == 1:
        compute()  # the send has been recorded
        with suppress(RuntimeError, ValueError):
            dist.recv(box.t(), 0)
        dist.recv(box, 0)
        assert box.sum() == 6


@right_program
def ring_in_batches(rank: int) -> None:
    given = torch.full((4,), float(rank))
    for _ in range(SIZE):
        taken = torch.empty(4)
        there = dist.P2POp(dist.isend, given, (rank + 1) % SIZE)
        here = dist.P2POp(dist.irecv, taken, (rank - 1) % SIZE)
        _wait(*dist.batch_isend_irecv([there, here]))
        given = taken
    assert given.tolist() == [rank] * 4


@right_program
def receives_a_size_from_anybody_then_its_data(rank: int) -> None:
    for _ in range(20):
        if rank:
            dist.send(torch.tensor([10 * rank]), dst=0)
            dist.send(torch.full((10 * rank,), float(rank)), dst=0)
            continue
        for _ in range(SIZE - 1):
            count = torch.empty(1, dtype=torch.int64)
            source = dist.recv(count)
            data = torch.empty(int(count))
            dist.recv(data, src=source)
            assert data.tolist() == [source] * 10 * source


@right_program
def sends_by_keywords(rank: int) -> None:
    world, box = dist.distributed_c10d._get_default_group(), torch.tensor([float(rank)])
    if rank == 0:
        world.send([box], dstRank=1, tag=3).wait()
    elif rank == 1:
        world.recv([box], srcRank=0, tag=3).wait()
        assert box == 0


@right_program
def a_thread_waits_for_orders(rank: int) -> None:
    orders, done = dist.new_group(), torch.empty(1)
    if rank == 0:
        dist.recv(done, src=1)
        for other in range(1, SIZE):
            dist.send(done, dst=other, group=orders)
        return
    with ThreadPoolExecutor(1) as pool:
        ordered = pool.submit(dist.recv, torch.empty(1), 0, orders)
        compute()  # computes in the meantime
        if rank == 1:
            dist.send(torch.ones(1), dst=0)
        assert ordered.result() == 0


@right_program
def a_thread_sends_what_its_rank_waits_for(rank: int) -> None:
    def send() -> None:
        compute()  # has not called before
        dist.send(torch.ones(1), dst=1)

    if rank == 0:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(send)
            dist.recv(torch.empty(1), src=1)
    elif rank == 1:
        dist.recv(torch.empty(1), src=0)
        dist.send(torch.ones(1), dst=0)


@right_program
def gives_up_a_barrier_for_which_others_do_not_come(rank: int) -> None:
    """Its own group is unusable then, but those of the other ranks aren't."""
    pair = dist.new_group([0, 1])
    if rank == 0:
        with suppress(RuntimeError):
            dist.monitored_barrier(pair, timeout=timedelta(milliseconds=300))
        dist.send(torch.ones(1), 1)
    elif rank == 1:
        dist.recv(torch.ones(1), 0)


# ------------------------------------------------------------------ right, as in larger programs


@right_program
def parameters_and_tensors_in_one_call(rank: int) -> None:
    layer = torch.nn.Linear(3, 3)
    parts = [torch.zeros(3, 3) for _ in range(SIZE)]
    handle = dist.all_gather(parts, layer.weight, async_op=True)
    assert layer.weight.sum() == layer.weight.detach().sum()  # reads what the call reads
    _wait(handle)
    with torch.no_grad():
        for parameter in layer.parameters():
            dist.broadcast(parameter, src=0)
    layer(torch.full((2, 3), float(rank))).sum().backward()
    grads = [parameter.grad for parameter in layer.parameters() if parameter.grad is not None]
    _wait(*[dist.all_reduce(grad, async_op=True) for grad in grads])
    takes = [torch.zeros(3, 3) for _ in range(SIZE)]
    if torch.__version__ >= "2.12":  # gloo has no all_to_all with lists before
        dist.all_to_all(takes, [layer.weight, *[torch.ones(3, 3)] * (SIZE - 1)])
    weight = layer.weight.detach().flatten()
    assert torch.equal(parts[0].flatten(), weight)
    own = torch.zeros(9)
    dist.reduce_scatter(own, [torch.nn.Parameter(weight.clone()), *[weight] * (SIZE - 1)])
    assert torch.allclose(own, SIZE * weight)


@right_program
def threads_with_groups_share_handles(rank: int) -> None:
    """One thread starts calls, and another one waits for them."""
    groups, totals = [dist.new_group() for _ in range(3)], [torch.ones(4) for _ in range(3)]

    def start(number: int) -> Any:
        return dist.all_reduce(totals[number], group=groups[number], async_op=True)

    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            _wait(*pool.map(start, range(3)))
    assert all(total.tolist() == [SIZE**3] * 4 for total in totals)


PACKAGE = """
def mean(value):
    dist.all_reduce(value)
    return value / SIZE
"""


@right_program
def a_package_averages_for_other_lines(rank: int) -> None:
    package: dict[str, Any] = {"dist": dist, "SIZE": SIZE}
    exec(  # noqa: S102 - a module in such a folder
        compile(PACKAGE, "/site-packages/corptrain/metrics.py", "exec"), package
    )
    for step in range(3):
        if rank == 0 and step == 0:
            assert package["mean"](torch.ones(1)) == 1
        else:
            package["mean"](torch.ones(1))


@right_program
def libraries_of_torch_call(rank: int) -> None:
    shapes: list[Any] = [None] * SIZE
    dist.all_gather_object(shapes, [rank] * rank)
    assert shapes[2] == [2, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of newer releases about this function
        loss = autograd_functional.all_reduce(torch.ones(2, requires_grad=True))  # type: ignore[no-untyped-call]  # torch's
    loss.sum().backward()


CORPUS = RIGHT[RIGHT.index(parameters_and_tensors_in_one_call) :]
"""Right programs that also run over mpi."""


def goes_on_when_its_peer_has_left(rank: int) -> None:
    """Run in its own world: rank 1 leaves early, while other ranks may still be receiving."""
    pair, total = dist.new_group([0, 1]), torch.ones(4)
    if rank < 2:
        dist.all_reduce(total, group=pair)
        dist.destroy_process_group(pair)
    dist.broadcast(total, src=1)
    if rank == 1:
        compute()
        dist.destroy_process_group()
    elif rank == 0:
        with suppress(RuntimeError):
            dist.recv(total, src=1)
    compute()


@right_program
def pads_lists_with_a_tensor_that_nobody_reads(rank: int) -> None:
    """An optimizer gathers two parameters on four ranks; a later one pads with the same tensor."""
    padding = torch.empty(4)
    for step in range(2):
        parameters = [torch.full((4,), float(step)) for _ in range(2)]
        parts = [*parameters, padding, padding]
        if rank < 2:
            parameters[rank].fill_(10 * step + rank)
        dist.all_gather(parts, parts[rank])
        assert [parameter[0].item() for parameter in parameters] == [10 * step, 10 * step + 1]
    dist.gather(torch.ones(4), [padding] * SIZE if rank == 0 else None, dst=0)
    padding.zero_()
    assert padding.sum() == 0


@right_program
def receives_messages_that_nobody_reads_into_one_tensor(rank: int) -> None:
    if rank == 3:
        ignored, last = torch.empty(4), torch.empty(4)
        peers = enumerate([ignored, ignored, last])
        _wait(*dist.batch_isend_irecv([dist.P2POp(dist.irecv, t, src) for src, t in peers]))
        dist.recv(ignored, 0)
        assert last.sum() + ignored.sum() == 40
    else:
        dist.send(torch.full((4,), rank + 1.0), 3)
        if rank == 0:
            dist.send(torch.full((4,), 7.0), 3)


@right_program
def broadcasts_tied_weights_twice_at_once(rank: int) -> None:
    tied = torch.full((4,), float(rank))
    _wait(*[dist.broadcast(weight, 0, async_op=True) for weight in (tied, tied)])
    assert tied.sum() == 0


@right_program
def gives_one_tensor_several_times(rank: int) -> None:
    one, result = torch.ones(4), torch.empty(4)
    dist.scatter(result, [one] * SIZE if rank == 0 else None, src=0)
    dist.reduce_scatter(result, [one] * SIZE)
    assert result.equal(torch.full((4,), float(SIZE)))


@right_program
def reduces_parts_of_unequal_size(rank: int) -> None:
    parts = [torch.full((other + 1,), float(other)) for other in range(SIZE)]
    result = torch.empty(rank + 1)
    dist.reduce_scatter(result, parts)
    assert result.equal(parts[rank] * SIZE)


@right_program
def sums_tensors_that_differ_in_a_stride_that_does_not_matter(rank: int) -> None:
    grid = torch.ones(4).as_strided((1, 2, 2), (9 if rank else 4, 1, 2))
    dist.all_reduce(grid)
    assert grid.equal(torch.full((1, 2, 2), float(SIZE)))


def all_right_programs(rank: int) -> None:
    """Run all other right programs, beginning with groups that only members create."""
    for right in RIGHT:
        right(rank)
    for mistake in MISTAKES.values():
        mistake.program(rank, True)


WORLDS = {
    program.__name__: program for program in (all_right_programs, goes_on_when_its_peer_has_left)
}
"""Right programs, by name."""
