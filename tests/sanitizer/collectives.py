"""Mistakes in collectives, each with its fixed version, and correct programs that look wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from sanitizer.pairs import faulty, right
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import _coalescing_manager, _get_default_group
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn.parallel import DistributedDataParallel

# Newer releases renamed these and warn about the old names.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

# ------------------------------------------------------------------------------------------- call


@faulty("call", ranks=(0,))
def first_rank_broadcasts_what_others_reduce(rank: int, size: int) -> None:
    loss = torch.ones(1)
    if rank == 0:
        dist.broadcast(loss, src=0)  # wrong
    else:
        dist.all_reduce(loss)


@right
def every_rank_reduces(rank: int, size: int) -> None:
    loss = torch.ones(1)
    dist.all_reduce(loss)
    if rank == 0:
        assert loss.item() == size


@faulty("call", ranks=(0,))
def first_rank_alone_averages_what_it_logs(rank: int, size: int) -> None:
    loss, weight = torch.ones(1), torch.full((8,), float(rank))
    dist.all_reduce(weight)
    if rank == 0:
        dist.all_reduce(loss)  # wrong
    dist.broadcast(weight, src=0)
    dist.barrier()


@right
def first_rank_logs_what_all_averaged(rank: int, size: int) -> None:
    loss, weight = torch.ones(1), torch.full((8,), float(rank))
    dist.all_reduce(weight)
    dist.all_reduce(loss)
    if rank == 0:
        assert loss.item() == size
    dist.broadcast(weight, src=0)
    dist.barrier()


@faulty("call", ranks=(3,))
def state_in_the_order_in_which_it_came(rank: int, size: int) -> None:
    """Weights are averaged, statistics are broadcast; one rank's dict has a different order."""
    names = ["weight", "running_mean"]
    if rank == 3:
        names.reverse()
    state = {name: torch.ones(4) for name in names}
    for name, tensor in state.items():
        if name.startswith("running"):
            dist.broadcast(tensor, src=0)  # wrong
        else:
            dist.all_reduce(tensor)


@right
def state_in_a_sorted_order(rank: int, size: int) -> None:
    names = ["weight", "running_mean"]
    if rank == 3:
        names.reverse()
    state = {name: torch.ones(4) for name in names}
    for name, tensor in sorted(state.items()):
        if name.startswith("running"):
            dist.broadcast(tensor, src=0)
        else:
            dist.all_reduce(tensor)


@faulty("call", ranks=(0,))
def barrier_of_the_rank_that_saves(rank: int, size: int) -> None:
    gradient = torch.ones(16)
    for step in range(3):
        dist.all_reduce(gradient)
        if rank == 0 and step == 1:
            dist.barrier()  # wrong


@right
def barrier_of_all_after_one_saves(rank: int, size: int) -> None:
    gradient = torch.ones(16)
    for step in range(3):
        dist.all_reduce(gradient)
        if step == 1:
            dist.barrier()


@faulty("call", ranks=(2,))
def only_the_rank_with_routed_tokens_exchanges(rank: int, size: int) -> None:
    """A mixture of experts: the tokens of the other ranks stay where they are."""
    routed = torch.ones(2 * size if rank == 2 else 0, 4)
    balance = torch.full((size,), float(len(routed)))
    if len(routed):
        dist.all_to_all_single(torch.empty_like(routed), routed)  # wrong
    dist.all_reduce(balance)


@right
def ranks_without_routed_tokens_exchange_too(rank: int, size: int) -> None:
    routed = torch.ones(2 * size if rank == 2 else 0, 4)
    gives = [len(routed) // size] * size
    takes = [2 if each == 2 else 0 for each in range(size)]
    received = torch.zeros(sum(takes), 4)
    dist.all_to_all_single(received, routed, takes, gives)
    assert received.sum() == 8
    dist.all_reduce(torch.full((size,), float(len(routed))))


@faulty("call", ranks=(3,))
def one_rank_skips_the_warm_up(rank: int, size: int) -> None:
    """One rank found a checkpoint, and the other ranks did not."""
    weight = torch.full((4,), float(rank))
    resumed = rank == 3
    if not resumed:
        for _ in range(2):
            dist.all_reduce(torch.ones(1))  # wrong
    dist.broadcast(weight, src=0)  # wrong


@right
def all_warm_up_whatever_they_found(rank: int, size: int) -> None:
    weight = torch.full((4,), float(rank))
    resumed = torch.tensor([int(rank == 3)])
    dist.all_reduce(resumed, dist.ReduceOp.MIN)
    if not resumed.item():
        for _ in range(2):
            dist.all_reduce(torch.ones(1))
    dist.broadcast(weight, src=0)


# ------------------------------------------------------------------------------------------ shape


def _summed(tensor: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(tensor)
    return tensor


@faulty("buffers", ranks=(0, 1, 2, 3))
def gathers_into_one_tensor_from_two_lines(rank: int, size: int) -> None:
    def gather(tensor: torch.Tensor) -> None:
        dist.all_gather([torch.empty(4)] * size, tensor)  # wrong

    gather(torch.ones(4))
    gather(torch.zeros(4))


@faulty("shape", ranks=(1,))
def sums_another_size_from_another_line(rank: int, size: int) -> None:
    _summed(torch.ones(4))
    if rank == 1:
        _summed(torch.ones(5))  # wrong
    else:
        _summed(torch.ones(6))


@right
def sums_the_same_size_from_another_line(rank: int, size: int) -> None:
    _summed(torch.ones(4))
    if rank == 1:
        _summed(torch.full((6,), 2.0))
    else:
        _summed(torch.ones(6))


@faulty("shape", ranks=(3,))
def last_batch_is_shorter(rank: int, size: int) -> None:
    for step in range(3):
        losses = torch.ones(3 if rank == 3 and step == 2 else 4)
        dist.all_reduce(losses)  # wrong


@right
def last_batch_is_summed_first(rank: int, size: int) -> None:
    for step in range(3):
        losses = torch.ones(3 if rank == 3 and step == 2 else 4)
        total = torch.stack([losses.sum(), torch.tensor(float(len(losses)))])
        dist.all_reduce(total)
        assert total[0] == total[1]


@faulty("shape", ranks=(1,))
def parameters_in_another_order(rank: int, size: int) -> None:
    parameters = {"weight": torch.ones(4, 2), "bias": torch.ones(4)}
    names = reversed(parameters) if rank == 1 else iter(parameters)
    for name in names:
        dist.all_reduce(parameters[name])  # wrong


@right
def parameters_in_a_sorted_order(rank: int, size: int) -> None:
    parameters = {"weight": torch.ones(4, 2), "bias": torch.ones(4)}
    names = reversed(parameters) if rank == 1 else iter(parameters)
    for name in sorted(names):
        dist.all_reduce(parameters[name])


@faulty("shape", ranks=(2,))
def one_rank_counted_another_vocabulary(rank: int, size: int) -> None:
    words = 11 if rank == 2 else 10
    embedding = torch.full((words, 4), float(rank))
    dist.broadcast(embedding, src=0)  # wrong


@right
def all_take_the_vocabulary_of_the_first(rank: int, size: int) -> None:
    words = torch.tensor([11 if rank == 2 else 10])
    dist.broadcast(words, src=0)
    embedding = torch.full((int(words), 4), float(rank))
    dist.broadcast(embedding, src=0)
    assert not embedding.any()


@faulty("shape")
def predictions_of_uneven_lengths_are_gathered(rank: int, size: int) -> None:
    mine = torch.arange(rank + 1)
    parts = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(parts, mine)  # wrong


@right
def predictions_are_padded_to_the_longest(rank: int, size: int) -> None:
    mine = torch.arange(rank + 1)
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(lengths, torch.tensor([len(mine)]))
    longest = max(int(length) for length in lengths)
    padded = torch.nn.functional.pad(mine, (0, longest - len(mine)))
    parts = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(parts, padded)
    assert [int(part.max()) for part in parts] == list(range(size))


@faulty("shape")
def chunks_of_ten_are_scattered_to_four(rank: int, size: int) -> None:
    """``chunk`` makes parts of 3, 3, 3 and 1."""
    mine = torch.zeros(3)
    parts = list(torch.arange(10.0).chunk(size)) if rank == 0 else None
    dist.scatter(mine, parts, src=0)  # wrong


@right
def chunks_of_twelve_are_scattered_to_four(rank: int, size: int) -> None:
    mine = torch.zeros(3)
    parts = list(torch.arange(12.0).chunk(size)) if rank == 0 else None
    dist.scatter(mine, parts, src=0)
    assert mine[0] == 3 * rank


# ------------------------------------------------------------------------------------------ dtype


@faulty("dtype", ranks=(1,))
def one_loss_is_a_double(rank: int, size: int) -> None:
    loss = torch.tensor([0.5], dtype=torch.float64 if rank == 1 else torch.float32)
    dist.all_reduce(loss)  # wrong


@right
def every_loss_is_made_a_float(rank: int, size: int) -> None:
    loss = torch.tensor([0.5], dtype=torch.float64 if rank == 1 else torch.float32)
    loss = loss.float()
    dist.all_reduce(loss)
    assert loss.item() == size / 2


@faulty("dtype", ranks=(0,))
def integers_are_broadcast_into_floats(rank: int, size: int) -> None:
    """The receivers' buffers have torch's default dtype."""
    if rank == 0:
        steps = torch.arange(4)
        dist.broadcast(steps, src=0)  # wrong
    else:
        steps = torch.zeros(4)
        dist.broadcast(steps, src=0)


@right
def integers_are_broadcast_into_integers(rank: int, size: int) -> None:
    if rank == 0:
        steps = torch.arange(4)
        dist.broadcast(steps, src=0)
    else:
        steps = torch.zeros(4, dtype=torch.int64)
        dist.broadcast(steps, src=0)
    assert steps.tolist() == [0, 1, 2, 3]


@faulty("dtype", ranks=(2,))
def one_rank_gathers_halves(rank: int, size: int) -> None:
    features = torch.ones(4)
    if rank == 2:
        features = features.half()
    parts = [torch.empty_like(features) for _ in range(size)]
    dist.all_gather(parts, features)  # wrong


@right
def every_rank_gathers_halves(rank: int, size: int) -> None:
    features = torch.ones(4).half()
    parts = [torch.empty_like(features) for _ in range(size)]
    dist.all_gather(parts, features)
    assert all(part.sum() == 4 for part in parts)


@faulty("dtype", ranks=(0,))
def root_adds_up_in_doubles(rank: int, size: int) -> None:
    total = torch.ones(4)
    if rank == 0:
        total = total.double()
    dist.reduce(total, dst=0)  # wrong


@right
def every_rank_adds_up_in_doubles(rank: int, size: int) -> None:
    total = torch.ones(4).double()
    dist.reduce(total, dst=0)
    if rank == 0:
        assert total.sum() == 4 * size


# -------------------------------------------------------------------------------------- reduce_op


@faulty("reduce_op", ranks=(2,))
def one_rank_adds_flags_up(rank: int, size: int) -> None:
    overflow = torch.ones(1)
    op = dist.ReduceOp.SUM if rank == 2 else dist.ReduceOp.MAX
    dist.all_reduce(overflow, op=op)  # wrong


@right
def all_take_the_greatest_flag(rank: int, size: int) -> None:
    overflow = torch.full((1,), float(rank == 2))
    dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
    assert overflow.item() == 1


@faulty("reduce_op", ranks=(3,))
def one_rank_multiplies_towards_the_root(rank: int, size: int) -> None:
    likelihood = torch.full((4,), 2.0)
    op = dist.ReduceOp.PRODUCT if rank == 3 else dist.ReduceOp.SUM
    dist.reduce(likelihood, dst=1, op=op)  # wrong


@right
def all_multiply_towards_the_root(rank: int, size: int) -> None:
    likelihood = torch.full((4,), 2.0)
    dist.reduce(likelihood, dst=1, op=dist.ReduceOp.PRODUCT)
    if rank == 1:
        assert likelihood[0] == 2**size


@faulty("reduce_op", ranks=(1,))
def one_rank_scatters_the_greatest(rank: int, size: int) -> None:
    gradients, mine = torch.ones(2 * size), torch.zeros(2)
    op = dist.ReduceOp.MAX if rank == 1 else dist.ReduceOp.SUM
    reduce_scatter_single(mine, gradients, op=op)  # wrong


@right
def all_scatter_the_sum(rank: int, size: int) -> None:
    gradients, mine = torch.ones(2 * size), torch.zeros(2)
    reduce_scatter_single(mine, gradients, op=dist.ReduceOp.SUM)
    assert mine.tolist() == [size, size]


@faulty("reduce_op", ranks=(1,))
def one_rank_of_a_subgroup_takes_the_least(rank: int, size: int) -> None:
    group = dist.new_group([1, 2, 3])
    score = torch.full((1,), float(rank))
    if rank == 1:
        dist.all_reduce(score, dist.ReduceOp.MIN, group=group)  # wrong
    elif rank > 1:
        dist.all_reduce(score, dist.ReduceOp.MAX, group=group)
    dist.barrier()


@right
def all_of_a_subgroup_take_the_greatest(rank: int, size: int) -> None:
    group = dist.new_group([1, 2, 3])
    score = torch.full((1,), float(rank))
    if rank == 1:
        dist.all_reduce(score, dist.ReduceOp.MAX, group=group)
    elif rank > 1:
        dist.all_reduce(score, op=dist.ReduceOp.MAX, group=group)
    dist.barrier()
    assert score.item() == (3 if rank else 0)


# ------------------------------------------------------------------------------------------- root


@faulty("root")
def every_rank_broadcasts_its_own(rank: int, size: int) -> None:
    weight = torch.full((4,), float(rank))
    dist.broadcast(weight, src=rank)  # wrong


@right
def every_rank_broadcasts_in_turn(rank: int, size: int) -> None:
    for root in range(size):
        weight = torch.full((4,), float(rank))
        dist.broadcast(weight, src=root)
        assert weight[0] == root


@faulty("root", ranks=(1,))
def one_rank_reduces_to_another(rank: int, size: int) -> None:
    correct = torch.ones(1)
    logger = size - 1 if rank == 1 else 0
    dist.reduce(correct, dst=logger)  # wrong


@right
def all_reduce_to_the_same(rank: int, size: int) -> None:
    correct = torch.ones(1)
    logger = size - 1
    dist.reduce(correct, dst=logger)
    if rank == logger:
        assert correct.item() == size


@faulty("root", ranks=(2,))
def one_rank_gathers_for_itself(rank: int, size: int) -> None:
    mine = torch.ones(3)
    root = 2 if rank == 2 else 0
    parts = [torch.zeros(3) for _ in range(size)] if rank == root else None
    dist.gather(mine, parts, dst=root)  # wrong


@right
def all_gather_for_one(rank: int, size: int) -> None:
    mine = torch.full((3,), float(rank))
    root = 2
    parts = [torch.zeros(3) for _ in range(size)] if rank == root else None
    dist.gather(mine, parts, dst=root)
    if parts is not None:
        assert [int(part[0]) for part in parts] == list(range(size))


@faulty("root", ranks=(3,))
def one_rank_scatters_its_own(rank: int, size: int) -> None:
    mine = torch.zeros(2)
    owner = 3 if rank == 3 else 0
    parts = [torch.full((2,), float(each)) for each in range(size)]
    dist.scatter(mine, parts if rank == owner else None, src=owner)  # wrong


@right
def last_rank_scatters(rank: int, size: int) -> None:
    mine = torch.zeros(2)
    owner = size - 1
    parts = [torch.full((2,), float(each)) for each in range(size)]
    dist.scatter(mine, parts if rank == owner else None, src=owner)
    assert mine[0] == rank


@faulty("root", ranks=(2,))
def one_rank_of_a_subgroup_takes_itself_for_the_root(rank: int, size: int) -> None:
    """A rank is the second of a pipeline's last stages but assumes that it is the first."""
    group = dist.new_group([1, 2, 3])
    weight = torch.full((4,), float(rank))
    if rank > 0:
        dist.broadcast(weight, src=2 if rank == 2 else 1, group=group)  # wrong


@right
def all_of_a_subgroup_take_the_first_for_the_root(rank: int, size: int) -> None:
    """The root is given once as a global rank and once as a group rank."""
    group = dist.new_group([1, 2, 3])
    weight = torch.full((4,), float(rank))
    if rank == 2:
        dist.broadcast(weight, group_src=0, group=group)
    elif rank > 0:
        dist.broadcast(weight, src=1, group=group)
    assert weight[0] == min(rank, 1)


# ----------------------------------------------------------------------------------------- splits


@faulty("splits", ranks=(1, 2))
def one_rank_gives_more_than_is_taken(rank: int, size: int) -> None:
    gives = [1] * size
    if rank == 2:
        gives[1] = 3
    tokens = torch.ones(sum(gives), 4)
    received = torch.zeros(size, 4)
    dist.all_to_all_single(received, tokens, [1] * size, gives)  # wrong


@right
def one_rank_gives_more_and_another_takes_it(rank: int, size: int) -> None:
    gives, takes = [1] * size, [1] * size
    if rank == 2:
        gives[1] = 3
    if rank == 1:
        takes[2] = 3
    tokens = torch.ones(sum(gives), 4)
    received = torch.zeros(sum(takes), 4)
    dist.all_to_all_single(received, tokens, takes, gives)
    assert received.sum() == 4 * sum(takes)


@faulty("splits")
def every_rank_takes_what_it_gives(rank: int, size: int) -> None:
    """Tokens for experts: a rank with more tokens expects the same number from every rank."""
    counts = [rank + 1] * size
    tokens = torch.ones(sum(counts))
    received = torch.empty_like(tokens)
    dist.all_to_all_single(received, tokens, counts, counts)  # wrong


@right
def every_rank_asks_what_it_will_get(rank: int, size: int) -> None:
    counts = [rank + 1] * size
    tokens = torch.ones(sum(counts))
    takes = torch.zeros(size, dtype=torch.int64)
    dist.all_to_all_single(takes, torch.tensor(counts))
    received = torch.zeros(int(takes.sum()))
    dist.all_to_all_single(received, tokens, takes.tolist(), counts)
    assert takes.tolist() == list(range(1, size + 1))
    assert received.all()


@faulty("splits", ranks=(3,))
def one_rank_exchanges_a_greater_capacity(rank: int, size: int) -> None:
    capacity = 4 if rank == 3 else 2
    tokens = torch.ones(size * capacity, 8)
    received = torch.empty_like(tokens)
    dist.all_to_all_single(received, tokens)  # wrong


@right
def all_exchange_the_greatest_capacity(rank: int, size: int) -> None:
    capacity = torch.tensor([4 if rank == 3 else 2])
    dist.all_reduce(capacity, op=dist.ReduceOp.MAX)
    tokens = torch.ones(size * int(capacity), 8)
    received = torch.zeros_like(tokens)
    dist.all_to_all_single(received, tokens)
    assert received.all()


if torch.__version__ >= "2.12":  # gloo supports lists since 2.12

    @faulty("splits", ranks=(1,))
    def one_rank_lists_longer_parts(rank: int, size: int) -> None:
        width = 6 if rank == 1 else 3
        parts = [torch.ones(width) for _ in range(size)]
        received = [torch.empty_like(part) for part in parts]
        dist.all_to_all(received, parts)  # wrong

    @right
    def all_list_parts_of_one_length(rank: int, size: int) -> None:
        parts = [torch.full((6,), float(rank)) for _ in range(size)]
        received = [torch.empty_like(part) for part in parts]
        dist.all_to_all(received, parts)
        assert [int(part[0]) for part in received] == list(range(size))


# --------------------------------------------------------------------------------------- argument


@faulty("argument")
def root_is_one_past_the_last_rank(rank: int, size: int) -> None:
    weight = torch.ones(4)
    dist.broadcast(weight, src=size)  # wrong


@right
def root_is_the_last_rank(rank: int, size: int) -> None:
    weight = torch.full((4,), float(rank))
    dist.broadcast(weight, src=size - 1)
    assert weight[0] == size - 1


@right
def root_that_is_refused_is_known_to_be(rank: int, size: int) -> None:
    weight = torch.ones(4)
    with pytest.raises((ValueError, RuntimeError)):
        dist.broadcast(weight, src=size)
    dist.barrier()


@faulty("argument", ranks=(3,))
def pipeline_sends_past_its_last_stage(rank: int, size: int) -> None:
    activation = torch.zeros(4)
    if rank > 0:
        dist.recv(activation, src=rank - 1)
    dist.send(activation + 1, dst=rank + 1)  # wrong


@right
def pipeline_ends_with_its_last_stage(rank: int, size: int) -> None:
    activation = torch.zeros(4)
    if rank > 0:
        dist.recv(activation, src=rank - 1)
    if rank < size - 1:
        dist.send(activation + 1, dst=rank + 1)
    assert activation[0] == rank


@faulty("argument")
def list_has_no_place_for_the_last_rank(rank: int, size: int) -> None:
    """Written for a world of three."""
    mine = torch.ones(2)
    parts = [torch.zeros(2) for _ in range(3)]
    dist.all_gather(parts, mine)  # wrong


@right
def list_has_a_place_for_every_rank(rank: int, size: int) -> None:
    mine = torch.ones(2)
    parts = [torch.zeros(2) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    assert all(part.sum() == 2 for part in parts)


@faulty("group")
def number_in_the_group_for_one_in_the_world(rank: int, size: int) -> None:
    group = dist.new_group([2, 3])
    weight = torch.full((4,), float(rank))
    if rank >= 2:
        dist.broadcast(weight, src=0, group=group)  # wrong
    dist.barrier()


@right
def number_in_the_world_for_a_group(rank: int, size: int) -> None:
    group = dist.new_group([2, 3])
    weight = torch.full((4,), float(rank))
    if rank >= 2:
        dist.broadcast(weight, src=2, group=group)
    dist.barrier()
    assert weight[0] == min(rank, 2)


@faulty("argument")
def last_rank_as_python_counts_it(rank: int, size: int) -> None:
    total = torch.ones(4)
    dist.reduce(total, dst=-1)  # wrong


@right
def last_rank_as_torch_counts_it(rank: int, size: int) -> None:
    total = torch.ones(4)
    dist.reduce(total, dst=size - 1)
    if rank == size - 1:
        assert total[0] == size


# ---------------------------------------------------------------------------------------- buffers


@faulty("buffers")
def one_tensor_for_what_all_give(rank: int, size: int) -> None:
    mine = torch.full((2,), float(rank))
    parts = [torch.zeros(2)] * size
    dist.all_gather(parts, mine)  # wrong


@right
def rows_of_one_tensor_for_what_all_give(rank: int, size: int) -> None:
    mine = torch.full((2,), float(rank))
    table = torch.zeros(size, 2)
    dist.all_gather(list(table.unbind()), mine)
    assert table[:, 0].tolist() == list(range(size))


@faulty("buffers", ranks=(0,))
def one_tensor_for_what_the_root_gathers(rank: int, size: int) -> None:
    mine = torch.full((2,), float(rank))
    parts = [torch.zeros_like(mine)] * size if rank == 0 else None
    dist.gather(mine, parts, dst=0)  # wrong


@right
def a_tensor_for_each_that_the_root_gathers(rank: int, size: int) -> None:
    mine = torch.full((2,), float(rank))
    parts = [torch.zeros_like(mine) for _ in range(size)] if rank == 0 else None
    dist.gather(mine, parts, dst=0)
    if parts is not None:
        assert [int(part[0]) for part in parts] == list(range(size))


# ------------------------------------------------------------------------------------------ right


@right
def objects_of_uneven_sizes_are_gathered_by_all(rank: int, size: int) -> None:
    found: list[str | None] = [None] * size
    dist.all_gather_object(found, "x" * 100 * rank)
    assert [len(each or "") for each in found] == [100 * each for each in range(size)]


@right
def objects_of_the_last_rank_are_broadcast(rank: int, size: int) -> None:
    last = size - 1
    found = ["a name", {"rate": 0.1}] if rank == last else [None, None]
    dist.broadcast_object_list(found, src=last)
    assert found == ["a name", {"rate": 0.1}]


@right
def objects_of_uneven_sizes_are_scattered(rank: int, size: int) -> None:
    mine: list[list[int] | None] = [None]
    parts = [list(range(50 * each)) for each in range(size)] if rank == 1 else None
    dist.scatter_object_list(mine, parts, src=1)
    assert len(mine[0] or []) == 50 * rank


@right
def objects_of_uneven_sizes_are_gathered_in_a_subgroup(rank: int, size: int) -> None:
    group = dist.new_group([1, 2, 3])
    if rank == 0:
        return
    found: list[str | None] | None = [None] * 3 if rank == 2 else None
    dist.gather_object("x" * 100 * rank, found, dst=2, group=group)
    if found is not None:
        assert [len(each or "") for each in found] == [100, 200, 300]


@right
def handles_are_waited_for_later_and_in_other_orders(rank: int, size: int) -> None:
    gradients = [torch.ones(4 + each) for each in range(6)]
    works = [dist.all_reduce(each, async_op=True) for each in gradients]
    loss = torch.ones(1)
    dist.all_reduce(loss)
    for work in reversed(works) if rank % 2 else works:
        work.wait()
    assert all(each.eq(size).all() for each in gradients)


@right
def subgroups_go_their_own_ways(rank: int, size: int) -> None:
    """The halves make different calls, and two groups have the same members."""
    left, right_half, evens = (dist.new_group(each) for each in ([0, 1], [2, 3], [0, 2]))
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


@right
def subgroups_of_two_differ_in_all_they_call(rank: int, size: int) -> None:
    mine, everyone = dist.new_subgroups(group_size=2)  # type: ignore[no-untyped-call]  # torch's
    number = torch.full((rank // 2 + 1,), float(rank))
    for _ in range(rank // 2 + 1):
        dist.all_reduce(number, group=mine)
    assert len(everyone) == size // 2
    dist.barrier()


@right
def rows_and_columns_of_a_mesh(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    number = torch.full((1,), float(rank))
    dist.all_reduce(number, group=mesh.get_group("shard"))
    dist.all_reduce(number, group=mesh.get_group("replica"))
    assert number.item() == sum(range(size))


@right
def three_steps_of_data_parallel(rank: int, size: int) -> None:
    """Bucketed gradients and broadcast statistics, none of them called from Python."""
    torch.manual_seed(rank)
    layers = [torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    for _ in range(3):
        model(torch.randn(4 + rank, 8)).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.sub_(0.1 * parameter.grad)
                parameter.grad = None
        dist.all_reduce(torch.ones(1))


@right
def uneven_splits_that_fit(rank: int, size: int) -> None:
    """The first rank sends nothing; then only some ranks pass even splits explicitly."""
    rows = torch.full((rank * size, 2), float(rank))
    received = torch.zeros(sum(range(size)), 2)
    dist.all_to_all_single(received, rows, list(range(size)), [rank] * size)
    assert received[:, 0].tolist() == [each for each in range(size) for _ in range(each)]
    splits = [1] * size if rank % 2 else None
    dist.all_to_all_single(torch.zeros(size), torch.ones(size), splits, splits)


@right
def uneven_parts_are_scattered_padded(rank: int, size: int) -> None:
    length, mine = torch.zeros(1, dtype=torch.int64), torch.zeros(size)
    if rank == 2:
        parts = [
            torch.nn.functional.pad(torch.ones(each), (0, size - each)) for each in range(size)
        ]
        dist.scatter(length, [torch.tensor([each]) for each in range(size)], src=2)
        dist.scatter(mine, parts, src=2)
    else:
        dist.scatter(length, src=2)
        dist.scatter(mine, [], src=2)
    assert mine[: int(length)].sum() == rank


@right
def small_calls_are_put_together(rank: int, size: int) -> None:
    weight, bias = torch.ones(4, 2), torch.ones(4)
    with _coalescing_manager():
        dist.all_reduce(weight)
        dist.all_reduce(bias)
    assert weight.sum() + bias.sum() == 12 * size
    tables = torch.zeros(2 * size), torch.zeros(3 * size)
    with _coalescing_manager():
        for table in tables:
            all_gather_single(table, torch.ones(len(table) // size))
    assert all(table.all() for table in tables)


@right
def parts_are_gathered_into_one_tensor(rank: int, size: int) -> None:
    flat, rows = torch.zeros(3 * size), torch.zeros(size, 3)
    all_gather_single(flat, torch.full((3,), float(rank)))
    work = all_gather_single(rows, torch.full((1, 3), float(rank)), async_op=True)
    work.wait()
    assert flat.tolist() == rows.flatten().tolist()


@right
def sums_are_scattered_from_one_tensor(rank: int, size: int) -> None:
    flat, rows = torch.ones(2 * size), torch.ones(2 * size, 3)
    mine, most, again = torch.zeros(2), torch.zeros(2, 3), torch.zeros(2)
    reduce_scatter_single(mine, flat)
    reduce_scatter_single(most, rows, op=dist.ReduceOp.MAX)
    dist.reduce_scatter(again, list(torch.ones(2 * size).chunk(size)))
    assert mine.tolist() == again.tolist() == [size, size]
    assert most.eq(size if torch.__version__ < "2.9" else 1).all()  # 2.8's gloo adds


@right
def the_same_call_from_many_lines(rank: int, size: int) -> None:
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


@right
def barriers_that_are_watched(rank: int, size: int) -> None:
    for _ in range(3):
        dist.monitored_barrier(timeout=timedelta(seconds=30))
        dist.monitored_barrier(timeout=timedelta(seconds=30), wait_all_ranks=True)
    dist.barrier(async_op=True).wait()


@right
def complex_numbers(rank: int, size: int) -> None:
    mine = torch.full((2,), complex(rank, 1))
    total, copied = mine.clone(), mine.clone()
    dist.all_reduce(total)
    if torch.__version__ >= "2.9":  # gloo supports it since 2.9
        dist.broadcast(copied, src=1)
    parts = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(parts, mine)
    dist.scatter(mine, parts if rank == 3 else None, src=3)
    received = torch.zeros(size, dtype=mine.dtype)
    dist.all_to_all_single(received, torch.stack(parts)[:, 0].contiguous())
    assert total[0] == complex(sum(range(size)), size)
    assert mine[0] == complex(rank, 1)


@right
def inference(rank: int, size: int) -> None:
    with torch.inference_mode():
        logits = torch.full((2, 3), float(rank))
        parts = [torch.empty_like(logits) for _ in range(size)]
        dist.all_gather(parts, logits)
        dist.broadcast(logits, src=0)
        dist.all_reduce(logits)
        table = torch.zeros(2 * size, 3)
        all_gather_single(table, logits)
    assert torch.stack(parts)[:, 0, 0].tolist() == list(range(size))


# ------------------------------------------------------------------------- functional collectives


if torch.__version__ >= "2.10":  # kernels can read the ReduceOp since 2.10

    @faulty("reduce_op", ranks=(2,))
    def one_rank_takes_the_greatest_of_all(rank: int, size: int) -> None:
        """Make calls that torch makes from C++."""
        op = "max" if rank == 2 else "sum"
        functional.all_reduce(torch.ones(4), op, _get_default_group()) + 0  # wrong


@faulty("shape", ranks=(1,))
def one_rank_has_a_longer_shard(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (size,))
    shard = torch.ones(3 if rank == 1 else 2, 4)
    sharded = DTensor.from_local(shard, mesh, [Shard(0)], run_check=False)
    sharded.redistribute(mesh, [Replicate()])  # wrong


@right
def functional_collectives_bring_what_they_should(rank: int, size: int) -> None:
    """Calls work although their kernels are replaced."""
    world = _get_default_group()
    mine, total = torch.arange(4.0) + rank, torch.arange(4.0) * size + sum(range(size))
    assert torch.equal(functional.all_reduce(mine, "sum", world) + 0, total)
    gathered = torch.cat([torch.arange(4.0) + each for each in range(size)])
    gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor
    assert torch.equal(gather(mine, 0, world) + 0, gathered)
    scatter = getattr(functional, "reduce_scatter_single", None) or functional.reduce_scatter_tensor
    assert torch.equal(scatter(mine, "sum", 0, world) + 0, total[rank : rank + 1])
    turned = functional.all_to_all_single(mine, None, None, world) + 0
    assert torch.equal(turned, torch.arange(float(size)) + rank)
    first, second = functional.all_reduce_coalesced([mine, -mine], "sum", world)
    assert torch.equal(first + 0, total)
    assert torch.equal(second + 0, -total)
    mesh = init_device_mesh("cpu", (size,))
    whole = DTensor.from_local(mine, mesh, [Shard(0)]).full_tensor()
    assert torch.equal(whole, gathered)


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """The same shape with a different memory order."""
    return tensor.t().contiguous().t()


@faulty("buffers", ranks=(0,))
def root_scatters_tensors_that_are_laid_out_in_another_way(rank: int, size: int) -> None:
    part = torch.zeros(2, 3)
    parts = [turned(torch.arange(6.0).reshape(2, 3)) for _ in range(size)]
    dist.scatter(part, parts if rank == 0 else None, 0)  # wrong


@right
def gathers_tensors_that_are_laid_out_in_another_way(rank: int, size: int) -> None:
    """gloo copies the gathered tensors."""
    mine = torch.arange(6.0).reshape(2, 3)
    mine = turned(mine) if rank == 1 else mine
    expected = torch.arange(6.0).reshape(2, 3)
    parts = [torch.zeros(2, 3) for _ in range(size)]
    dist.all_gather(parts, mine)
    assert all(torch.equal(part, expected) for part in parts)
    if torch.__version__ >= "2.9":  # 2.8 gathers the memory as it lies
        dist.gather(mine, parts if rank == 0 else None, 0)
        assert all(torch.equal(part, expected) for part in parts)
    whole = torch.zeros(2 * size, 3)
    getattr(dist, "all_gather_single", dist.all_gather_into_tensor)(whole, mine)
    assert torch.equal(whole, torch.cat([expected] * size))
