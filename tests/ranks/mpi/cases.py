"""What every rank of a world over MPI tries: reductions and data movement, against plain Python.

A case is called with its rank and the number of ranks, on every rank, in the same order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
import torch.distributed as dist
from plain import FOLDS

from distdemo.dtypes import DTYPES
from distdemo.ops.reduction import REDUCTIONS, wrapped

if TYPE_CHECKING:
    Case = Callable[[int, int], None]

CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def held(rank: int, dtype: str, count: int = 3) -> list[Any]:
    """What a rank starts with: ``[r + 1, r + 2, ...]``, or a pattern of truth values."""
    if dtype == "bool":
        return [(rank >> place) % 2 == 0 for place in range(count)]
    return [rank + 1 + place for place in range(count)]


def tensor(rank: int, dtype: str = "float32", count: int = 3) -> torch.Tensor:
    return torch.tensor(held(rank, dtype, count), dtype=torch.float64).to(getattr(torch, dtype))


def same(found: torch.Tensor, wanted: list[Any]) -> None:
    """Element for element, the wanted numbers rounded as the dtype rounds them."""
    wide = torch.complex128 if found.is_complex() else torch.float64
    rounded = torch.tensor(wanted, dtype=wide).to(found.dtype).to(wide)
    got = found.detach().to(wide).flatten()
    assert torch.equal(bits(got), bits(rounded)), f"{got.tolist()} != {rounded.tolist()}"


def bits(numbers: torch.Tensor) -> torch.Tensor:
    """Wide numbers as they are in memory, so that zeros differ by their sign; NaNs are alike."""
    real = torch.view_as_real(numbers) if numbers.is_complex() else numbers
    return real.masked_fill(real.isnan(), math.nan).contiguous().view(torch.int64)


@contextmanager
def refused(error: type[Exception], text: str) -> Iterator[None]:
    with pytest.raises(error, match=re.escape(text)):
        yield


def total(name: str, rows: list[list[Any]], dtype: str) -> list[Any]:
    """The rows reduced in plain Python."""
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
    """Every dtype and reduce op, and whether the two go together."""
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
        if not good or dtype.startswith("complex"):  # torch refuses most of these by itself
            continue
        found = tensor(rank, dtype)
        dist.all_reduce(found, op)
        same(found, total(name, [held(r, dtype) for r in range(n)], dtype))


@case
def nan_wins_on_every_rank(rank: int, n: int) -> None:
    floats = [name for name, kind in DTYPES.items() if kind.kind == "float"]
    assert {"float16", "float32", "float64"} <= set(floats)
    for dtype in floats:
        for op, wanted in ((dist.ReduceOp.MAX, float(n)), (dist.ReduceOp.MIN, 1.0)):
            for sign in (1.0, -1.0):
                for count in (n + 1, 70_000):  # each way of waiting, and more than one block
                    mine = torch.full((count,), rank + 1.0).to(getattr(torch, dtype))
                    mine[rank] = math.copysign(math.nan, sign)
                    over_all(mine, op, [math.nan] * n + [wanted])


def over_all(mine: torch.Tensor, op: Any, wanted: list[float]) -> None:
    """Reduce in every form; compare as far as the wanted numbers go, the rest with the last."""
    rank, n = dist.get_rank(), dist.get_world_size()
    whole = [*wanted, *wanted[-1:] * (mine.numel() - len(wanted))]
    found = mine.clone()
    dist.all_reduce(found, op)
    same(found, whole)
    rooted = mine.clone()
    dist.reduce(rooted, n - 1, op)
    same(rooted, whole if rank == n - 1 else mine.double().tolist())
    part, parts = torch.empty_like(mine), [mine] * n
    dist.reduce_scatter(part, parts, op)
    same(part, whole)
    same(mine, mine.double().tolist())


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
def all_reduce_of_complex_numbers(rank: int, n: int) -> None:
    found = torch.tensor([complex(rank, 1)])
    dist.all_reduce(found)
    assert found.item() == complex(sum(range(n)), n)


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
def averages_and_weighted_sums(rank: int, n: int) -> None:
    found = tensor(rank, "float16")
    dist.reduce(found, n - 1, dist.ReduceOp.AVG)
    wanted = total("avg", [held(r, "float16") for r in range(n)], "float16")
    same(found, wanted if rank == n - 1 else held(rank, "float16"))
    make = getattr(torch._C._distributed_c10d, "_make_nccl_premul_sum", None)
    if make is not None:
        found = tensor(rank)
        dist.all_reduce(found, make(torch.tensor([2.0])))
        sums = total("sum", [held(r, "float32") for r in range(n)], "float32")
        same(found, [2 * value for value in sums])


@case
def short_floats_are_rounded_once(rank: int, n: int) -> None:
    # 256 + 1 is 256 in bfloat16: added one by one, the ones would be lost.
    found = torch.tensor([256.0 if rank == 0 else 1.0], dtype=torch.bfloat16)
    dist.all_reduce(found)
    same(found, [torch.tensor(256.0 + n - 1, dtype=torch.bfloat16).item()])


@case
def whole_numbers_wrap_around(rank: int, n: int) -> None:
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
    group._allgather_base(single, single[3 * rank : 3 * rank + 3]).wait()  # in its place already
    same(single, wanted)
    single[:3] = tensor(rank)
    group._allgather_base(single, single[:3]).wait()  # in the place of rank 0
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
    found = torch.full((100_001,), rank + 1.0)  # beyond what is polled: a barrier, then blocking
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
