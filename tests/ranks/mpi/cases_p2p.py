"""More that every rank tries: messages, handles, groups, odd tensors, refusals."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import threading
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from ranks.mpi.cases import case, refused, same, tensor
from torch._C._distributed_c10d import HashStore

SOON = timedelta(milliseconds=100)


@case
def messages_with_tags(rank: int, n: int) -> None:
    to, source = (rank + 1) % n, (rank - 1) % n
    handles = [dist.isend(torch.tensor([rank, tag]), to, tag=tag) for tag in (0, 5, 1_000_000, 5)]
    for tag in (1_000_000, 5, 5, 0):  # not the order in which they were sent
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
def futures_come_though_nobody_waits(rank: int, n: int) -> None:
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
    assert handle.get_future().value()[0] is found  # asked for once it was over
    late = cast("Any", dist.barrier(async_op=True))
    late.wait()
    assert late.get_future().wait() == []


@case
def futures_whose_callbacks_ask_for_more(rank: int, n: int) -> None:
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
def a_forked_process_leaves_mpi_alone(rank: int, n: int) -> None:
    cast("Any", dist.all_reduce(torch.ones(1), async_op=True)).get_future().wait()
    child = os.fork()
    if child == 0:
        atexit._run_exitfuncs()  # as at the end of a program, without what pytest has to do
        os._exit(7)
    assert ended_in_time(child) == 7
    found = torch.ones(1)
    dist.all_reduce(found)
    same(found, [n])


def ended_in_time(child: int) -> int:
    """The exit code of a process; it is killed if it has none after 5 s, half of an op's time."""
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
def groups_of_some(rank: int, n: int) -> None:
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
def gaps_in_memory(rank: int, n: int) -> None:
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
    group = cast("Any", dist.group.WORLD)  # torch itself refuses lazy conjugates in most ops
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
def scalars_and_nothing(rank: int, n: int) -> None:
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
def autograd_is_left_alone(rank: int, n: int) -> None:
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
    room[0].mul_(2).requires_grad_()  # an ordinary tensor, whatever was done to it
    (leaf * 3).sum().backward()
    same(cast("torch.Tensor", leaf.grad), [3, 3])
    with torch.inference_mode():
        found = torch.ones(2, 2)
        dist.all_reduce(found.t())
        dist.all_reduce(found[:, 1], dist.ReduceOp.AVG)
    same(found, [n] * 4)
    dist.all_reduce(found, dist.ReduceOp.AVG)  # one made for inference, outside of it
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
def refusals_come_before_any_call(rank: int, n: int) -> None:
    one = torch.ones(2)
    with refused(TypeError, "not on meta"):
        dist.all_reduce(torch.ones(2, device="meta"))
    with refused(TypeError, "dense"):
        dist.broadcast(torch.eye(2).to_sparse(), 0)
    with refused(ValueError, "one dtype"):
        cast("Any", dist.group.WORLD)._allgather_base(torch.ones(2 * n), one.double()).wait()
    with refused(ValueError, "no room"):
        cast("Any", dist.group.WORLD)._allgather_base(torch.ones(2 * n + 1), one).wait()
    with refused(ValueError, "one a rank"):
        dist.all_gather([torch.ones(2)], one)
    with refused(ValueError, "splits"):
        dist.all_to_all_single(torch.ones(n), torch.ones(n), [n] * n, [1] * n)
    with refused(ValueError, "go from 0 to"):
        dist.send(one, (rank + 1) % n, tag=-3)
    with refused(TypeError, "rarely one"):
        dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.AVG)
    with refused(ValueError, "GLOO"):  # torch's own refusal
        dist.monitored_barrier()
    dist.barrier()


@case
def several_threads(rank: int, n: int) -> None:
    groups = [dist.new_group() for _ in range(3)]
    asked = os.environ.get("MPI4PY_RC_THREAD_LEVEL", "multiple")
    assert (type(cast("Any", groups[0]).comm).__name__ == "Guarded") == (asked != "multiple")
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
def ended_and_begun_again(rank: int, n: int) -> None:
    import distdemo.mpi
    from distdemo.errors import UsageError

    assert distdemo.mpi.provided_by == "mpi4py"
    assert dist.is_mpi_available()
    assert dist.get_backend() == "mpi"
    dist.destroy_process_group()
    with refused(UsageError, "MPI says that it is rank"):
        dist.init_process_group("mpi", rank=rank, world_size=n + 1, store=HashStore())
    dist.init_process_group("mpi", rank=rank, world_size=n, store=HashStore(), timeout=SOON * 100)
    found = torch.ones(1)
    dist.all_reduce(found)
    same(found, [n])
    dist.destroy_process_group()


@case
def another_backend_beside(rank: int, n: int) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("cpu:mpi,meta:fake", store=FakeStore(), rank=rank, world_size=n)
    found = tensor(rank)
    dist.all_reduce(found)
    same(found, [sum(r + 1 + place for r in range(n)) for place in range(3)])
    fake = torch._C._dispatch_has_kernel_for_dispatch_key("c10d::allreduce_", "Meta")
    if fake:  # not in torch 2.8
        dist.all_reduce(torch.empty(3, device="meta"))
    group = dist.new_group([0, 1])
    if rank < 2:
        dist.broadcast(found.fill_(rank), 1, group=group)
        if fake:
            dist.broadcast(torch.empty(3, device="meta"), 1, group=group)
        same(found, [1, 1, 1])
    dist.destroy_process_group()
    dist.init_process_group("mpi")


@case
def zz_ranks_that_never_come(rank: int, n: int) -> None:
    """The last one: an op out of time stays under way for ever."""
    pair = dist.new_group([0, 1], timeout=SOON)
    large = dist.new_group([0, 1], timeout=SOON)
    if rank == 0:
        with refused(dist.DistBackendError, "all_reduce over MPI timed out after 0.1 s on rank 0"):
            dist.all_reduce(torch.ones(1), group=pair)
        with refused(dist.DistBackendError, "all_reduce over MPI timed out after 0.1 s"):
            dist.all_reduce(torch.ones(100_000), group=large)
        handle = cast("Any", dist.irecv(torch.ones(1), 1))
        assert not handle.is_completed()
        with refused(dist.DistBackendError, "recv over MPI timed out after 0.02 s"):
            handle.wait(SOON / 5)
    dist.barrier()
    if rank == 1:
        with refused(dist.DistBackendError, "making a process group over MPI timed out"):
            dist.new_group([1, 2], timeout=SOON)
    dist.barrier()
