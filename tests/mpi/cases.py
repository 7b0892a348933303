"""Test cases that every rank of an MPI world runs, checked against plain Python.

``mpiexec -n 3 python cases.py [CASE...]`` prints one line of JSON a case and rank. A case is called
with its rank and the number of ranks, on every rank, in the same order.
"""

from __future__ import annotations

import atexit
import gc
import json
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

sys.path.insert(0, str(Path(__file__).parents[1]))  # where this is a program

from plain import FOLDS

from distdemo.dtypes import DTYPES
from distdemo.ops.reduction import REDUCTIONS, wrapped

if TYPE_CHECKING:
    Case = Callable[[int, int], None]

CASES: dict[str, Case] = {}
SHORT_TIMEOUT = timedelta(seconds=0.5)


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def held(rank: int, dtype: str, count: int = 3) -> list[Any]:
    """Return a rank's input: ``[r + 1, r + 2, ...]``, or a pattern of bools."""
    if dtype == "bool":
        return [(rank >> index) % 2 == 0 for index in range(count)]
    return [rank + 1 + index for index in range(count)]


def tensor(rank: int, dtype: str = "float32", count: int = 3) -> torch.Tensor:
    return torch.tensor(held(rank, dtype, count), dtype=torch.float64).to(getattr(torch, dtype))


def same(found: torch.Tensor, wanted: Any) -> None:
    """Assert that all elements equal the wanted numbers, rounded to the dtype."""
    wide = torch.complex128 if found.is_complex() else torch.float64
    rounded = torch.as_tensor(wanted, dtype=wide).to(found.dtype).to(wide).flatten()
    got = found.detach().to(wide).flatten()
    assert torch.equal(bits(got), bits(rounded)), f"{got.tolist()} != {rounded.tolist()}"


def bits(numbers: torch.Tensor) -> torch.Tensor:
    """Return the bits of floats, so that zeros differ by sign, with all NaNs equal."""
    real = torch.view_as_real(numbers) if numbers.is_complex() else numbers
    return real.masked_fill(real.isnan(), math.nan).contiguous().view(torch.int64)


@contextmanager
def refused(error: type[Exception], text: str) -> Iterator[None]:
    try:
        yield
    except error as raised:
        assert text in str(raised), raised  # noqa: PT017 - pytest takes long to import on each rank
    else:
        raise AssertionError(f"nothing said {text!r}")


def total(name: str, rows: list[list[Any]], dtype: str) -> list[Any]:
    """Return the rows reduced in plain Python."""
    results = []
    for column in zip(*rows, strict=True):
        value = column[0] * 2 if name == "premul_sum" else column[0]
        for other in column[1:]:
            value = FOLDS[name](value, other * 2 if name == "premul_sum" else other)
        value = value / len(rows) if name == "avg" else value
        results.append(wrapped(value, dtype))
    return results


def torch_op(name: str) -> Any:
    make = getattr(torch._C._distributed_c10d, "_make_nccl_premul_sum", None)
    if name == "premul_sum":
        return make(2.0) if make is not None else None
    return getattr(dist.ReduceOp, REDUCTIONS[name].torch_name)


def reductions() -> Iterator[tuple[str, str, Any, bool]]:
    """Yield every dtype and reduce op, and True if they can be combined."""
    for dtype, kind in DTYPES.items():
        for name, reduction in REDUCTIONS.items():
            op = torch_op(name)
            if op is not None:
                yield dtype, name, op, kind.kind in reduction.kinds


@case
def reduce_scatter_of_every_dtype_and_reduce_op(rank: int, n: int) -> None:
    for dtype, name, op, good in reductions():
        found = torch.zeros(2, dtype=getattr(torch, dtype))
        parts = [tensor(rank + place, dtype, 2) for place in range(n)]
        if not good:
            with refused(TypeError, "MPI does not reduce"):
                dist.reduce_scatter(found, parts, op)
            continue
        dist.reduce_scatter(found, parts, op)
        same(found, total(name, [held(r + rank, dtype, 2) for r in range(n)], dtype))


@case
def all_reduce_of_every_dtype_and_reduce_op(rank: int, n: int) -> None:
    for dtype, name, op, good in reductions():
        if not good or dtype.startswith("complex"):  # torch rejects most of these
            continue
        found = tensor(rank, dtype)
        dist.all_reduce(found, op)
        same(found, total(name, [held(r, dtype) for r in range(n)], dtype))


@case
def nan_propagates_on_every_rank(rank: int, n: int) -> None:
    floats = [name for name, kind in DTYPES.items() if kind.kind == "float"]
    assert {"float16", "float32", "float64"} <= set(floats)
    for dtype in floats:
        for op, wanted in ((dist.ReduceOp.MAX, float(n)), (dist.ReduceOp.MIN, 1.0)):
            for sign in (1.0, -1.0):
                for count in (n + 1, 70_000):  # both ways of waiting, and more than one block
                    mine = torch.full((count,), rank + 1.0).to(getattr(torch, dtype))
                    mine[rank] = math.copysign(math.nan, sign)
                    over_all(mine, op, [math.nan] * n + [wanted])


def over_all(mine: torch.Tensor, op: Any, wanted: list[float]) -> None:
    """Reduce in every form; compare with the wanted numbers, the last of which repeats."""
    rank, n = dist.get_rank(), dist.get_world_size()
    whole = torch.full((mine.numel(),), wanted[-1], dtype=torch.float64)
    whole[: len(wanted)] = torch.tensor(wanted, dtype=torch.float64)
    before = mine.clone()
    found = mine.clone()
    dist.all_reduce(found, op)
    same(found, whole)
    rooted = mine.clone()
    dist.reduce(rooted, n - 1, op)
    same(rooted, whole if rank == n - 1 else before)
    part, parts = torch.empty_like(mine), [mine] * n
    dist.reduce_scatter(part, parts, op)
    same(part, whole)
    same(mine, before)


@case
def zeros_and_infinities_have_one_order(rank: int, n: int) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        mine = torch.full((n,), -2.0, dtype=dtype)
        mine[rank] = math.inf
        over_all(mine, dist.ReduceOp.MAX, [math.inf] * n)
        mine[rank] = -math.inf
        over_all(mine, dist.ReduceOp.MIN, [-math.inf] * n)
        zeros = torch.tensor(
            [-0.0 if rank == 1 else 0.0, -0.0, 0.0 if rank == 1 else -0.0], dtype=dtype
        )
        over_all(zeros, dist.ReduceOp.MAX, [0.0, -0.0, 0.0])
        over_all(zeros, dist.ReduceOp.MIN, [-0.0, -0.0, -0.0])
    gaps = torch.full((3, 2), math.nan if rank == 1 else 0.5)
    dist.all_reduce(gaps[:, 1], dist.ReduceOp.MAX)
    same(gaps[:, 1], [math.nan] * 3)
    leaf = torch.tensor(rank + 1.0, requires_grad=True)
    dist.all_reduce(leaf, dist.ReduceOp.MAX)
    same(leaf, [n])
    several = [torch.full((2,), rank + 1.0), torch.tensor([math.nan])]
    cast("Any", dist.group.WORLD).allreduce_coalesced(several, maximum()).wait()
    same(several[0], [n, n])
    same(several[1], [math.nan])
    late = torch.tensor([rank + 1.0, math.nan])
    cast("Any", dist.all_reduce(late, dist.ReduceOp.MAX, async_op=True)).wait()
    same(late, [n, math.nan])


def maximum() -> Any:
    opts = torch._C._distributed_c10d.AllreduceCoalescedOptions()
    opts.reduceOp = dist.ReduceOp(dist.ReduceOp.MAX)
    return opts


@case
def reduce_to_every_root(rank: int, n: int) -> None:
    for root in range(n):
        for dtype in ("float32", "bfloat16", "int64"):
            found = tensor(rank, dtype)
            dist.reduce(found, root)
            mine = held(rank, dtype)
            same(
                found,
                total("sum", [held(r, dtype) for r in range(n)], dtype) if rank == root else mine,
            )


@case
def short_floats_are_rounded_once(rank: int, n: int) -> None:
    # 256 + 1 is 256 in bfloat16: added one by one, the ones would be lost.
    found = torch.tensor([256.0 if rank == 0 else 1.0], dtype=torch.bfloat16)
    dist.all_reduce(found)
    same(found, [torch.tensor(256.0 + n - 1, dtype=torch.bfloat16).item()])


@case
def integers_wrap_around(rank: int, n: int) -> None:
    found = torch.tensor([100, 127], dtype=torch.int8)
    dist.all_reduce(found)
    same(found, [wrapped(100 * n, "int8"), wrapped(127 * n, "int8")])


@case
def reduce_scatter_in_all_forms(rank: int, n: int) -> None:
    wanted = total("sum", [held(r + rank, "float32") for r in range(n)], "float32")
    single = torch.cat([tensor(rank + place) for place in range(n)])
    whole = single.clone()
    found = torch.empty(3)
    group = cast("Any", dist.group.WORLD)
    group._reduce_scatter_base(found, single).wait()
    same(found, wanted)
    same(single, whole.tolist())
    inside = single[3 * rank : 3 * rank + 3]
    group._reduce_scatter_base(inside, single).wait()  # the output lies in the input
    same(inside, wanted)
    for name, dtype in (("AVG", "float64"), ("MAX", "float32"), ("SUM", "bfloat16")):
        opts = dist.ReduceScatterOptions()
        opts.reduceOp = getattr(dist.ReduceOp, name)
        before = whole.to(getattr(torch, dtype))
        after, apart = before.clone(), before[:3].clone()
        part = after[3 * rank : 3 * rank + 3]
        group._reduce_scatter_base(apart, before, opts).wait()
        group._reduce_scatter_base(part, after, opts).wait()
        same(part, apart.tolist())
        others = [place for place in range(3 * n) if place // 3 != rank]
        same(after[others], before[others].tolist())
    uneven = torch.empty(rank + 1)
    dist.reduce_scatter(uneven, [torch.full((place + 1,), float(rank)) for place in range(n)])
    same(uneven, [sum(range(n))] * (rank + 1))
    two = [torch.empty(1), torch.empty(3, dtype=torch.int64)]
    whole_numbers = torch.arange(3 * n)
    group.reduce_scatter_tensor_coalesced(two, [torch.ones(n), whole_numbers]).wait()
    same(two[0], [n])
    same(two[1], [n * (3 * rank + place) for place in range(3)])


@case
def broadcast_of_every_dtype(rank: int, n: int) -> None:
    for dtype in DTYPES:
        found = tensor(rank, dtype)
        dist.broadcast(found, n - 1)
        same(found, held(n - 1, dtype))


@case
def scatter_and_gather(rank: int, n: int) -> None:
    for root in (0, n - 1):
        found = torch.empty(3, dtype=torch.bfloat16)
        parts = [tensor(10 + r, "bfloat16") for r in range(n)] if rank == root else None
        dist.scatter(found, parts, root)
        same(found, held(10 + rank, "bfloat16"))
        room = [torch.empty(3, dtype=torch.uint16) for _ in range(n)] if rank == root else None
        dist.gather(tensor(rank, "uint16"), room, root)
        for source, part in enumerate(room or []):
            same(part, held(source, "uint16"))


@case
def all_gather_in_all_forms(rank: int, n: int) -> None:
    wanted = [number for r in range(n) for number in held(r, "float32")]
    room = [torch.empty(3) for _ in range(n)]
    dist.all_gather(room, tensor(rank))
    same(torch.cat(room), wanted)
    uneven = [torch.empty(r) for r in range(n)]
    dist.all_gather(uneven, torch.full((rank,), float(rank)))
    same(torch.cat(uneven), [r for r in range(n) for _ in range(r)])
    group = cast("Any", dist.group.WORLD)
    single = torch.empty(3 * n)
    group._allgather_base(single, tensor(rank)).wait()
    same(single, wanted)
    single = torch.zeros(3 * n)
    single[3 * rank : 3 * rank + 3] = tensor(rank)
    group._allgather_base(single, single[3 * rank : 3 * rank + 3]).wait()  # in place
    same(single, wanted)
    single[:3] = tensor(rank)
    group._allgather_base(single, single[:3]).wait()  # in rank 0's part
    same(single, wanted)
    two = [torch.empty(n), torch.empty(2 * n)]
    ones = [torch.full((1,), float(rank)), torch.full((2,), float(rank))]
    group.allgather_into_tensor_coalesced(two, ones).wait()
    same(torch.cat(two), [*range(n), *(r for r in range(n) for _ in range(2))])
    lists = [[torch.empty(1), torch.empty(2)] for _ in range(n)]
    group.allgather_coalesced(lists, ones).wait()
    same(
        torch.cat([part for parts in lists for part in parts]),
        [r for r in range(n) for _ in range(3)],
    )


@case
def all_to_all_in_all_forms(rank: int, n: int) -> None:
    room = [torch.empty(1) for _ in range(n)]
    dist.all_to_all(room, [torch.tensor([10.0 * rank + to]) for to in range(n)])
    same(torch.cat(room), [10 * source + rank for source in range(n)])
    uneven = [torch.empty(source + rank) for source in range(n)]
    dist.all_to_all(uneven, [torch.full((rank + to,), float(rank)) for to in range(n)])
    same(torch.cat(uneven), [source for source in range(n) for _ in range(source + rank)])
    found = torch.empty(n, 2)
    dist.all_to_all_single(found, torch.tensor([[10.0 * rank + to] * 2 for to in range(n)]))
    same(found, [10 * source + rank for source in range(n) for _ in range(2)])
    splits, mine = [to + 1 for to in range(n)], [rank + 1] * n
    found = torch.empty(sum(mine), 2)
    dist.all_to_all_single(found, torch.full((sum(splits), 2), float(rank)), mine, splits)
    same(found, [source for source in range(n) for _ in range(2 * (rank + 1))])


@case
def all_reduce_of_large_tensors(rank: int, n: int) -> None:
    found = torch.full((100_001,), rank + 1.0)  # large: a barrier, then the blocking form
    dist.all_reduce(found)
    assert found.eq(sum(range(1, n + 1))).all()
    dist.broadcast(found.fill_(rank), 1)
    assert found.eq(1).all()


@case
def all_reduce_of_several_tensors(rank: int, n: int) -> None:
    tensors = [torch.full((2, 2), float(rank)), torch.ones(4, 1).t(), torch.tensor(float(rank))]
    cast("Any", dist.group.WORLD).allreduce_coalesced(tensors).wait()
    same(tensors[0], [sum(range(n))] * 4)
    same(tensors[1], [n] * 4)
    same(tensors[2], [sum(range(n))])


@case
def objects(rank: int, n: int) -> None:
    found: list[Any] = [None] * n
    dist.all_gather_object(found, {"rank": rank, "text": "x" * rank})
    assert found == [{"rank": r, "text": "x" * r} for r in range(n)]
    things: list[Any] = [("from", 1), None] if rank == 1 else [None, None]
    dist.broadcast_object_list(things, src=1)
    assert things == [("from", 1), None]
    room: list[Any] | None = [None] * n if rank == 0 else None
    dist.gather_object(rank * 2, room, dst=0)
    assert room is None or room == [2 * r for r in range(n)]
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [f"to {r}" for r in range(n)] if rank == 0 else None, src=0)
    assert mine == [f"to {rank}"]
    if rank == 0:
        dist.send_object_list(["hello", 7], dst=1)
    if rank == 1:
        room = [None, None]
        assert dist.recv_object_list(room, src=0) == 0
        assert room == ["hello", 7]


@case
def messages_with_tags(rank: int, n: int) -> None:
    to, source = (rank + 1) % n, (rank - 1) % n
    handles = [dist.isend(torch.tensor([rank, tag]), to, tag=tag) for tag in (0, 5, 1_000_000, 5)]
    for tag in (1_000_000, 5, 5, 0):  # not in the order of the sends
        found = torch.zeros(2, dtype=torch.int64)
        assert dist.recv(found, source, tag=tag) == source
        same(found, [source, tag])
    for handle in handles:
        cast("Any", handle).wait()


@case
def messages_from_any_source(rank: int, n: int) -> None:
    if rank > 0:
        dist.send(torch.full((2,), float(rank)), 0, tag=3)
        return
    found = torch.empty(2)
    seen = set()
    for _ in range(n - 1):
        source = dist.recv(found, tag=3)
        same(found, [source] * 2)
        seen.add(source)
    assert seen == set(range(1, n))


@case
def batches_of_messages(rank: int, n: int) -> None:
    room = [torch.empty(2) for _ in range(n)]
    ops = [
        dist.P2POp(dist.isend, torch.full((2,), float(rank)), to) for to in range(n) if to != rank
    ]
    ops += [dist.P2POp(dist.irecv, room[source], source) for source in range(n) if source != rank]
    for handle in dist.batch_isend_irecv(ops):
        handle.wait()
    for source in range(n):
        if source != rank:
            same(room[source], [source] * 2)


@case
def messages_that_are_shorter_or_longer(rank: int, n: int) -> None:
    if rank == 0:
        dist.send(torch.ones(2), 1)
        dist.send(torch.ones(5), 1)
    if rank == 1:
        found = torch.zeros(4)
        dist.recv(found, 0)
        same(found, [1, 1, 0, 0])
        with refused(dist.DistBackendError, "recv over MPI failed on rank 1"):
            dist.recv(found, 0)
    dist.barrier()


@case
def handles_of_every_op(rank: int, n: int) -> None:
    total = sum(range(n))
    one = torch.tensor([float(rank)])
    handle = cast("Any", dist.all_reduce(one, async_op=True))
    assert handle.wait() is True
    assert handle.is_completed()
    assert handle.is_success()
    assert handle.exception() is None
    assert handle.result()[0] is one
    same(one, [total])
    room = [torch.empty(1) for _ in range(n)]
    mine = torch.tensor([float(rank)])
    parts = [torch.tensor([10.0 * rank + to]) for to in range(n)]
    half = torch.tensor([rank], dtype=torch.float16)
    to_me, reduced, scattered = torch.empty(1), mine.clone(), torch.empty(1)
    exchanged = [torch.empty(1) for _ in range(n)]
    single = torch.empty(n)
    gathered = [torch.empty(1) for _ in range(n)]
    handles = [
        dist.broadcast(to_me.fill_(rank), 1, async_op=True),
        dist.all_gather(room, mine, async_op=True),
        dist.reduce(reduced, 0, async_op=True),
        dist.reduce_scatter(scattered, parts, async_op=True),
        dist.all_to_all(exchanged, parts, async_op=True),
        dist.all_to_all_single(single, torch.cat(parts), async_op=True),
        dist.gather(mine, gathered if rank == 0 else None, async_op=True),
        dist.all_reduce(half, dist.ReduceOp.AVG, async_op=True),
        dist.barrier(async_op=True),
    ]
    del parts
    gc.collect()
    for each in reversed(handles):
        cast("Any", each).wait(timedelta(seconds=20))
    same(to_me, [1])
    same(torch.cat(room), list(range(n)))
    same(reduced, [total if rank == 0 else rank])
    same(scattered, [10 * total + n * rank])
    same(torch.cat(exchanged), [10 * source + rank for source in range(n)])
    same(single, [10 * source + rank for source in range(n)])
    if rank == 0:
        same(torch.cat(gathered), list(range(n)))
    same(half, [total / n])


@case
def futures_resolve_without_a_wait(rank: int, n: int) -> None:
    found = torch.tensor([float(rank)])
    came = threading.Event()
    handle = cast("Any", dist.all_reduce(found, async_op=True))

    def double(future: Any) -> torch.Tensor:
        came.set()
        return cast("torch.Tensor", future.value()[0] * 2)

    doubled = handle.get_future().then(double)
    assert came.wait(20)
    same(doubled.wait(), [2 * sum(range(n))])
    assert handle.is_completed()
    assert handle.get_future().value()[0] is found  # requested after the op was done
    late = cast("Any", dist.barrier(async_op=True))
    late.wait()
    assert late.get_future().wait() == []


@case
def futures_whose_callbacks_call_again(rank: int, n: int) -> None:
    found, again = torch.ones(1), torch.ones(1)
    handle = cast("Any", dist.all_reduce(found, async_op=True))
    seen: list[Any] = []
    came = threading.Event()

    def ask(future: Any) -> None:
        seen.extend([handle.get_future() is not None, handle.is_completed(), handle.wait()])
        dist.all_reduce(again)
        came.set()

    future = handle.get_future().then(ask)
    assert came.wait(20), seen
    future.wait()
    assert seen == [True] * 3
    same(again, [n])


@case
def a_forked_process_does_not_finalize_mpi(rank: int, n: int) -> None:
    cast("Any", dist.all_reduce(torch.ones(1), async_op=True)).get_future().wait()
    child = os.fork()
    if child == 0:
        atexit._run_exitfuncs()  # as at exit, but without pytest's handlers
        os._exit(7)
    assert exit_code(child) == 7
    found = torch.ones(1)
    dist.all_reduce(found)
    same(found, [n])


def exit_code(child: int) -> int:
    """Return the exit code of a process; kill it after 5 s, half of an op's timeout."""
    status: list[int] = []
    waiting = threading.Thread(target=lambda: status.append(os.waitpid(child, 0)[1]))
    waiting.start()
    waiting.join(5)
    if waiting.is_alive():
        os.kill(child, signal.SIGKILL)
        waiting.join()
    return os.waitstatus_to_exitcode(status[0])


@case
def handles_that_are_dropped(rank: int, n: int) -> None:
    for _ in range(40):
        dist.all_reduce(torch.ones(2000), async_op=True)
        dist.all_reduce(torch.ones(200, 20).t(), async_op=True)
        gc.collect(0)
    kept = torch.ones(3)
    dist.all_reduce(kept)
    same(kept, [n] * 3)
    from distdemo.mpi.work import all_done, pending

    assert all_done(20)
    assert not pending


@case
def subgroups(rank: int, n: int) -> None:
    some = [0, n - 1]
    group = dist.new_group(some)
    other = dist.new_group([0, 1], backend="mpi")
    if rank in some:
        found = torch.tensor([float(rank)])
        dist.all_reduce(found, group=group)
        same(found, [sum(some)])
        dist.broadcast(found.fill_(rank), src=n - 1, group=group)
        same(found, [n - 1])
        assert dist.get_group_rank(cast("Any", group), rank) == some.index(rank)
        room: list[Any] = [None, None]
        dist.all_gather_object(room, rank, group=group)
        assert room == some
        if rank == some[0]:
            dist.send(torch.ones(1), group=group, group_dst=1)
        else:
            assert dist.recv(found, group=group) == some[0]
        dist.barrier(group=group)
        dist.destroy_process_group(group)
    if rank < 2:
        found = torch.ones(1)
        dist.all_reduce(found, group=other)
        same(found, [2])
    alone = [dist.new_group([r]) for r in range(n)][rank]
    found = torch.tensor([3.0])
    dist.all_reduce(found, group=alone)
    same(found, [3])
    for _ in range(5):
        again = dist.new_group()
        dist.all_reduce(found, group=again)
        dist.destroy_process_group(again)
    same(found, [3 * n**5])


@case
def strided_tensors(rank: int, n: int) -> None:
    whole = torch.full((4, 3), -1.0)
    column = whole[:, 1]
    dist.all_reduce(column.fill_(rank))
    same(whole, [-1, sum(range(n)), -1] * 4)
    turned = torch.arange(6.0).reshape(2, 3).t()
    dist.broadcast(turned.mul_(rank), 1)
    same(turned, [0, 3, 1, 4, 2, 5])
    room = [torch.zeros(3, 2)[:, 0] for _ in range(n)]
    dist.all_gather(room, torch.full((3, 2), float(rank))[:, 1])
    same(torch.cat(room), [r for r in range(n) for _ in range(3)])
    flipped = torch.tensor([complex(1, rank)]).conj()
    group = cast("Any", dist.group.WORLD)  # torch rejects lazy conjugates in most ops
    if rank == 1:
        group.send([flipped], 2, 0).wait()
        group.send([flipped.imag], 2, 0).wait()
    if rank == 2:
        group.recv([flipped], 1, 0).wait()
        assert flipped.item() == complex(1, -1)
        group.recv([flipped.imag], 1, 0).wait()
        assert flipped.item() == complex(1, -1)
    wide = torch.zeros(4, 2)
    if rank == 0:
        dist.send(torch.arange(8.0).reshape(2, 4).t()[:, 1], 1)
    if rank == 1:
        dist.recv(wide[:, 0], 0)
        same(wide, [4, 0, 5, 0, 6, 0, 7, 0])


@case
def scalars_and_empty_tensors(rank: int, n: int) -> None:
    scalar = torch.tensor(float(rank))
    dist.all_reduce(scalar)
    assert scalar.item() == sum(range(n))
    assert scalar.shape == ()
    nothing = torch.empty(0, 3)
    dist.all_reduce(nothing)
    dist.broadcast(nothing, 0)
    dist.all_gather([torch.empty(0) for _ in range(n)], torch.empty(0))
    dist.reduce_scatter(torch.empty(0), [torch.empty(0) for _ in range(n)])
    dist.all_to_all_single(torch.empty(0, 2), torch.empty(0, 2))
    room = [torch.empty(()) for _ in range(n)]
    dist.all_gather(room, torch.tensor(float(rank)))
    assert [each.item() for each in room] == list(range(n))
    found = torch.empty(())
    cast("Any", dist.group.WORLD)._reduce_scatter_base(found, torch.ones(n)).wait()
    assert found.item() == n


@case
def autograd_is_not_affected(rank: int, n: int) -> None:
    leaf = torch.full((2,), float(rank), requires_grad=True)
    dist.all_reduce(leaf)
    dist.all_reduce(leaf, dist.ReduceOp.AVG)
    same(leaf, [sum(range(n))] * 2)
    assert leaf.is_leaf
    short = torch.ones(2, dtype=torch.float16, requires_grad=True)
    dist.all_reduce(short)
    same(short, [n] * 2)
    room = [torch.empty(2) for _ in range(n)]
    dist.all_gather(room, (leaf * 2)[:])
    assert not room[0].requires_grad
    room[0].mul_(2).requires_grad_()  # still an ordinary tensor
    (leaf * 3).sum().backward()
    same(cast("torch.Tensor", leaf.grad), [3, 3])
    with torch.inference_mode():
        found = torch.ones(2, 2)
        dist.all_reduce(found.t())
        dist.all_reduce(found[:, 1], dist.ReduceOp.AVG)
    same(found, [n] * 4)
    dist.all_reduce(found, dist.ReduceOp.AVG)  # an inference tensor, outside inference mode
    same(found, [n] * 4)


@case
def functional_collectives(rank: int, n: int) -> None:
    ops, name = torch.ops._c10d_functional, cast("Any", dist.group.WORLD).group_name
    found = ops.all_reduce(torch.tensor([float(rank)]), "sum", name)
    same(ops.wait_tensor(found), [sum(range(n))])
    gathered = ops.all_gather_into_tensor(torch.tensor([float(rank)]), n, name)
    same(ops.wait_tensor(gathered), list(range(n)))
    scattered = ops.reduce_scatter_tensor(torch.arange(float(n)), "sum", n, name)
    same(ops.wait_tensor(scattered), [n * rank])


@case
def errors_are_raised_before_any_call(rank: int, n: int) -> None:
    one = torch.ones(2)
    with refused(TypeError, "not on meta"):
        dist.all_reduce(torch.ones(2, device="meta"))
    with refused(TypeError, "dense"):
        dist.broadcast(torch.eye(2).to_sparse(), 0)
    with refused(ValueError, "same dtype"):
        cast("Any", dist.group.WORLD)._allgather_base(torch.ones(2 * n), one.double()).wait()
    with refused(ValueError, "does not hold"):
        cast("Any", dist.group.WORLD)._allgather_base(torch.ones(2 * n + 1), one).wait()
    with refused(ValueError, "one per rank"):
        dist.all_gather([torch.ones(2)], one)
    with refused(ValueError, "splits"):
        dist.all_to_all_single(torch.ones(n), torch.ones(n), [n] * n, [1] * n)
    with refused(ValueError, "go from 0 to"):
        dist.send(one, (rank + 1) % n, tag=-3)
    with refused(TypeError, "rarely an integer"):
        dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.AVG)
    with refused(ValueError, "GLOO"):  # torch's own refusal
        dist.monitored_barrier()
    dist.barrier()


@case
def several_threads(rank: int, n: int) -> None:
    groups = [dist.new_group() for _ in range(3)]
    found = [torch.zeros(1) for _ in groups]

    def work(place: int) -> None:
        for _ in range(50):
            dist.all_reduce(found[place].fill_(rank + place), group=groups[place])

    threads = [threading.Thread(target=work, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    same(torch.cat(found), [sum(range(n)) + n * place for place in range(3)])
    for group in groups:
        dist.destroy_process_group(group)


@case
def destroyed_and_created_again(rank: int, n: int) -> None:
    import distdemo.mpi
    from distdemo.errors import UsageError

    assert distdemo.mpi.provided_by == "mpi4py"
    assert dist.is_mpi_available()
    assert dist.get_backend() == "mpi"
    dist.destroy_process_group()
    with refused(UsageError, "MPI says that this process is rank"):
        dist.init_process_group("mpi", rank=rank, world_size=n + 1, store=HashStore())
    dist.init_process_group(
        "mpi", rank=rank, world_size=n, store=HashStore(), timeout=timedelta(seconds=10)
    )
    found = torch.ones(1)
    dist.all_reduce(found)
    same(found, [n])
    dist.destroy_process_group()
    dist.init_process_group("mpi")


@case
def zz_missing_ranks(rank: int, n: int) -> None:
    """The last case: an op that timed out stays pending forever."""
    dist.barrier()  # creating a group has the same short timeout
    pair = dist.new_group([0, 1], timeout=SHORT_TIMEOUT)
    large = dist.new_group([0, 1], timeout=SHORT_TIMEOUT)
    if rank == 0:
        with refused(dist.DistBackendError, "all_reduce over MPI timed out after 0.5 s on rank 0"):
            dist.all_reduce(torch.ones(1), group=pair)
        with refused(dist.DistBackendError, "all_reduce over MPI timed out after 0.5 s"):
            dist.all_reduce(torch.ones(100_000), group=large)
        handle = cast("Any", dist.irecv(torch.ones(1), 1))
        assert not handle.is_completed()
        with refused(dist.DistBackendError, "recv over MPI timed out after 0.1 s"):
            handle.wait(SHORT_TIMEOUT / 5)
    dist.barrier()
    if rank == 1:
        with refused(dist.DistBackendError, "creating a process group over MPI timed out"):
            dist.new_group([1, 2], timeout=SHORT_TIMEOUT)
    dist.barrier()


def run_cases(wanted: list[str]) -> None:
    """Run these cases, in the order of their definition. Collective."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for name in sorted(wanted, key=list(CASES).index):
        problem = ""
        try:
            CASES[name](rank, size)
        except Exception:  # noqa: BLE001 - it is reported
            problem = traceback.format_exc()
        line = json.dumps({"case": name, "rank": rank, "problem": problem})
        os.write(1, f"{line}\n".encode())  # one write, so that lines of several ranks don't mix
        if problem:  # the ranks are out of step now
            os._exit(1)


if __name__ == "__main__":
    import distdemo.mpi  # noqa: F401 - registers the backend

    torch.set_num_threads(1)
    dist.init_process_group("mpi", timeout=timedelta(seconds=10))
    run_cases(sys.argv[1:] or list(CASES))
