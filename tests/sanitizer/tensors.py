"""Pairs of programs for ``--sanitize=buffers``: the memory of calls in progress."""

from __future__ import annotations

import torch
import torch.distributed as dist
from sanitizer.pairs import faulty, right


@faulty("buffers", ranks=(0,))
def counts_on_in_the_buffer_that_it_sends(rank: int, size: int) -> None:
    step = torch.zeros(8)
    if rank == 0:
        sending = dist.isend(step, 1)  # wrong
        step.add_(1)
        assert sending is not None
        sending.wait()
    elif rank == 1:
        dist.recv(step, 0)


@right
def counts_on_when_it_has_sent(rank: int, size: int) -> None:
    step = torch.zeros(8)
    if rank == 0:
        sending = dist.isend(step, 1)
        assert sending is not None
        sending.wait()
        step.add_(1)
    elif rank == 1:
        dist.recv(step, 0)


@faulty("buffers", ranks=(2,))
def one_rank_clips_before_the_sum_is_there(rank: int, size: int) -> None:
    gradient = torch.ones(8)
    summing = dist.all_reduce(gradient, async_op=True)  # wrong
    if rank == 2:
        gradient.clamp_(max=1)
    summing.wait()


@right
def all_clip_the_sum(rank: int, size: int) -> None:
    gradient = torch.ones(8)
    dist.all_reduce(gradient, async_op=True).wait()
    gradient.clamp_(max=1)


@faulty("buffers", ranks=(0,))
def forgets_its_handle(rank: int, size: int) -> None:
    loss = torch.ones(1)
    summing = dist.all_reduce(loss, async_op=True)  # wrong
    if rank != 0:
        summing.wait()
    dist.barrier()


@right
def asks_until_it_is_done(rank: int, size: int) -> None:
    loss = torch.ones(1)
    summing = dist.all_reduce(loss, async_op=True)
    while not summing.is_completed():
        pass
    summing.wait()


@faulty("buffers")
def sums_a_column_in_place(rank: int, size: int) -> None:
    table = torch.ones(4, 4)
    dist.all_reduce(table[:, rank % 2])  # wrong


@right
def sums_a_copy_of_the_column_and_a_transposed_table(rank: int, size: int) -> None:
    table = torch.ones(4, 4)
    dist.all_reduce(table[:, 1].contiguous())
    dist.all_reduce(table.t())
