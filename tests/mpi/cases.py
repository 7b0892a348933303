"""Cases that ``distdemo check`` doesn't have, run by every rank of an MPI world.

``mpiexec -n 3 python cases.py [CASE...]`` prints one line of JSON per case and rank. A case is
called with its rank and the number of ranks, on every rank, in the same order.
"""

from __future__ import annotations

import atexit
import gc
import json
import math
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from distdemo.ops.reduction import wrapped

if TYPE_CHECKING:
    Case = Callable[[int, int], None]

CASES: dict[str, Case] = {}
SHORT_TIMEOUT = timedelta(seconds=0.2)


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def same(actual: torch.Tensor, wanted: Any) -> None:
    """Assert that all elements equal the wanted numbers, rounded to the dtype."""
    wide = torch.complex128 if actual.is_complex() else torch.float64
    rounded = torch.as_tensor(wanted, dtype=wide).to(actual.dtype).to(wide).flatten()
    got = actual.detach().to(wide).flatten()
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
def nan_propagates_on_every_rank(rank: int, n: int) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for op, wanted in ((dist.ReduceOp.MAX, float(n)), (dist.ReduceOp.MIN, 1.0)):
            for count in (n + 1, 70_000):  # both ways of waiting, and more than one block
                mine = torch.full((count,), rank + 1.0).to(dtype)
                mine[rank] = math.copysign(math.nan, rank - 1)
                over_all(mine, op, [math.nan] * n + [wanted])


@case
def sums_are_rounded_once_and_integers_wrap(rank: int, n: int) -> None:
    # 256 + 1 is 256 in bfloat16: added one by one, the ones would be lost.
    tensor = torch.tensor([256.0 if rank == 0 else 1.0], dtype=torch.bfloat16)
    dist.all_reduce(tensor)
    same(tensor, [256.0 + n - 1])
    whole = torch.tensor([100, 127], dtype=torch.int8)
    dist.all_reduce(whole)
    same(whole, [wrapped(100 * n, "int8"), wrapped(127 * n, "int8")])


@case
def parts_in_place_and_of_unequal_lengths(rank: int, n: int) -> None:
    """The forms of torch's own layers, which distdemo's ops don't have."""
    group = cast("Any", dist.group.WORLD)
    whole = torch.arange(3.0 * n) + rank
    for name, dtype in (("AVG", "float64"), ("MAX", "float32"), ("SUM", "bfloat16")):
        opts = dist.ReduceScatterOptions()
        opts.reduceOp = getattr(dist.ReduceOp, name)
        before = whole.to(getattr(torch, dtype))
        after, apart = before.clone(), before[:3].clone()
        part = after[3 * rank : 3 * rank + 3]
        group._reduce_scatter_base(apart, before, opts).wait()
        group._reduce_scatter_base(part, after, opts).wait()  # the output lies in the input
        same(part, apart.tolist())
        others = [place for place in range(3 * n) if place // 3 != rank]
        same(after[others], before[others].tolist())
    uneven = torch.empty(rank + 1)
    dist.reduce_scatter(uneven, [torch.full((place + 1,), float(rank)) for place in range(n)])
    same(uneven, [sum(range(n))] * (rank + 1))
    for place in (rank, 0):  # in place, and in rank 0's part
        single = torch.zeros(3 * n)
        mine = single[3 * place : 3 * place + 3].fill_(rank)
        group._allgather_base(single, mine).wait()
        same(single, [r for r in range(n) for _ in range(3)])


@case
def messages_by_tag_and_from_any_source(rank: int, n: int) -> None:
    to, source = (rank + 1) % n, (rank - 1) % n
    handles = [dist.isend(torch.tensor([rank, tag]), to, tag=tag) for tag in (0, 5, 1_000_000, 5)]
    for tag in (1_000_000, 5, 5, 0):  # not in the order of the sends
        tensor = torch.zeros(2, dtype=torch.int64)
        assert dist.recv(tensor, source, tag=tag) == source
        same(tensor, [source, tag])
    for handle in handles:
        cast("Any", handle).wait()
    if rank > 0:
        dist.send(torch.full((2,), float(rank)), 0, tag=3)
        return
    room = torch.empty(2)
    sources = {dist.recv(room, tag=3) for _ in range(n - 1)}
    assert sources == set(range(1, n))


@case
def handles_in_any_order(rank: int, n: int) -> None:
    one = torch.tensor([float(rank)])
    handle = cast("Any", dist.all_reduce(one, async_op=True))
    assert handle.wait() is True
    assert (handle.is_completed(), handle.is_success(), handle.exception()) == (True, True, None)
    assert handle.result()[0] is one
    mine, half = torch.tensor([float(rank)]), torch.tensor([rank], dtype=torch.float16)
    room, reduced, single = [torch.empty(1) for _ in range(n)], mine.clone(), torch.empty(n)
    handles = [
        dist.all_gather(room, mine, async_op=True),
        dist.reduce(reduced, 0, async_op=True),
        dist.all_to_all_single(single, torch.arange(float(n)) + 10 * rank, async_op=True),
        dist.all_reduce(half, dist.ReduceOp.AVG, async_op=True),
        dist.barrier(async_op=True),
    ]
    gc.collect()  # of the inputs that nobody holds any more
    for handle in reversed(handles):
        cast("Any", handle).wait(timedelta(seconds=20))
    same(torch.cat(room), list(range(n)))
    same(reduced, [sum(range(n)) if rank == 0 else rank])
    same(single, [10 * source + rank for source in range(n)])
    same(half, [sum(range(n)) / n])


@case
def futures_have_the_result(rank: int, n: int) -> None:
    tensor = torch.tensor([float(rank)])
    handle = cast("Any", dist.all_reduce(tensor, async_op=True))
    came = threading.Event()

    def double(future: Any) -> torch.Tensor:
        assert handle.wait()
        came.set()
        return cast("torch.Tensor", future.value()[0] * 2)

    doubled = handle.get_future().then(double)
    assert came.wait(20)  # without a wait for the handle
    same(doubled.wait(), [2 * sum(range(n))])
    assert handle.is_completed()
    assert handle.get_future().value()[0] is tensor  # requested after the op was done


@case
def a_forked_process_does_not_finalize_mpi(rank: int, n: int) -> None:
    cast("Any", dist.all_reduce(torch.ones(1), async_op=True)).get_future().wait()
    child = os.fork()
    if child == 0:
        atexit._run_exitfuncs()  # as at exit, but without pytest's handlers
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    same(tensor, [n])


@case
def handles_that_are_dropped(rank: int, n: int) -> None:
    for _ in range(40):
        dist.all_reduce(torch.ones(2000), async_op=True)
        dist.all_reduce(torch.ones(200, 20).t(), async_op=True)
        gc.collect(0)
    kept = torch.ones(3)
    dist.all_reduce(kept)
    same(kept, [n] * 3)
    from distdemo.mpi.engine import pending

    for work in list(pending):
        work.wait(timedelta(seconds=20))
    assert not pending


@case
def groups_are_made_and_destroyed(rank: int, n: int) -> None:
    pair = [0, n - 1]
    group = dist.new_group(pair, backend="mpi")
    if rank in pair:
        if rank == 0:
            dist.send(torch.ones(1), group=group, group_dst=1)
        else:
            assert dist.recv(torch.empty(1), group=group) == 0
        dist.destroy_process_group(group)
    alone = [dist.new_group([r]) for r in range(n)][rank]
    tensor = torch.tensor([3.0])
    dist.all_reduce(tensor, group=alone)
    for _ in range(5):
        again = dist.new_group()
        dist.all_reduce(tensor, group=again)
        dist.destroy_process_group(again)
    same(tensor, [3 * n**5])


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
        inferred = torch.ones(2)
    dist.all_reduce(inferred)
    same(inferred, [n] * 2)


@case
def functional_collectives(rank: int, n: int) -> None:
    ops, name = torch.ops._c10d_functional, cast("Any", dist.group.WORLD).group_name
    tensor = ops.all_reduce(torch.tensor([float(rank)]), "sum", name)
    same(ops.wait_tensor(tensor), [sum(range(n))])
    gathered = ops.all_gather_into_tensor(torch.tensor([float(rank)]), n, name)
    same(ops.wait_tensor(gathered), list(range(n)))
    scattered = ops.reduce_scatter_tensor(torch.arange(float(n)), "sum", n, name)
    same(ops.wait_tensor(scattered), [n * rank])
    several = ops.all_reduce_coalesced([torch.ones(2), torch.ones(1)], "sum", name)
    same(torch.cat([ops.wait_tensor(tensor) for tensor in several]), [n] * 3)


@case
def errors_are_raised_before_any_call(rank: int, n: int) -> None:
    one = torch.ones(2)
    with refused(TypeError, "on meta"):
        dist.all_reduce(torch.ones(2, device="meta"))
    with refused(ValueError, "same dtype"):
        cast("Any", dist.group.WORLD)._allgather_base(torch.ones(2 * n), one.double()).wait()
    with refused(ValueError, "one per rank"):
        dist.all_gather([torch.ones(2)], one)
    with refused(ValueError, "splits"):
        dist.all_to_all_single(torch.ones(n), torch.ones(n), [n] * n, [1] * n)
    with refused(TypeError, "does not reduce"):
        dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.AVG)
    dist.barrier()


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
    dist.init_process_group("mpi", rank=rank, world_size=n, store=HashStore())
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    same(tensor, [n])
    dist.destroy_process_group()
    dist.init_process_group("mpi")


@case
def zz_missing_ranks(rank: int, n: int) -> None:
    """The last case: an op that timed out stays pending forever."""
    pair, large = (cast("Any", dist.new_group([0, 1])) for _ in range(2))
    if rank == 0:
        for group, count in ((pair, 1), (large, 100_000)):
            group.set_timeout(SHORT_TIMEOUT)
            with refused(dist.DistBackendError, "over MPI timed out after 0.2 s on rank 0"):
                dist.all_reduce(torch.ones(count), group=group)
        handle = cast("Any", dist.irecv(torch.ones(1), 1))
        assert not handle.is_completed()
        with refused(dist.DistBackendError, "recv over MPI timed out after 0.2 s"):
            handle.wait(SHORT_TIMEOUT)
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
        except Exception:  # it is reported
            problem = traceback.format_exc()
        line = json.dumps({"case": name, "rank": rank, "problem": problem})
        os.write(1, f"{line}\n".encode())  # one write, so that lines of several ranks don't mix
        if problem:  # the ranks are out of step now
            os._exit(1)


if __name__ == "__main__":
    import distdemo.mpi  # noqa: F401 - registers the backend

    torch.set_num_threads(1)
    dist.init_process_group("mpi", timeout=timedelta(seconds=60))
    run_cases(sys.argv[1:] or list(CASES))
