"""Schedules on real ranks: right, with the bytes that were counted, and caught where not."""

from __future__ import annotations

import importlib.util

import pytest
import torch.distributed as dist
from tracings import spec_of, world

from distdemo import ops
from distdemo.backends.starting import run_prepared
from distdemo.demo.verify import verify
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.launcher.local import run_world
from distdemo.ops.buffers import expected
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.spec import OpSpec
from distdemo.trace import algorithms
from distdemo.trace.algorithms.broadcast_tree import TreeBroadcast
from distdemo.trace.algorithms.plan import ScheduleError, plan_of
from distdemo.trace.count import count
from distdemo.trace.plans import check_traceable, plan_for
from distdemo.trace.runner import Runner
from distdemo.trace.tracing import TraceSpec

REDUCE_OPS = ("sum", "max", "avg", "product", "premul_sum")


def cases(n):
    """Every algorithm with every payload; over all n each has had every reduce op."""
    for turn, algorithm in enumerate(algorithms.REGISTRY):
        for place, elements in enumerate((0, 1, n - 1, n, 1000)):
            reduce_op = REDUCE_OPS[(turn + place + n) % len(REDUCE_OPS)]
            root = (turn + place) % n
            spec = spec_of(algorithm.op, n, elements, reduce_op, root)
            yield TraceSpec(spec, algorithm.name)
        if algorithm.chunked:
            yield TraceSpec(spec_of(algorithm.op, n, 10), algorithm.name, chunks=4)


def wire_tap(monkeypatch):
    """Count, in this process, the bytes that are handed to torch.distributed on their way."""
    seen = {"isend": 0, "irecv": 0}

    def tapped(name, call):
        def pass_on(tensor, *rest, **named):
            seen[name] += tensor.nbytes
            return call(tensor, *rest, **named)

        return pass_on

    for name in seen:
        monkeypatch.setattr(dist, name, tapped(name, getattr(dist, name)))
    return seen


def one_after_the_other(rank, specs):
    """Collective: run each, on this rank; what was wrong, and the bytes that were seen."""
    with pytest.MonkeyPatch.context() as patch:
        seen = wire_tap(patch)
        return [_run_one(rank, spec, seen) for spec in specs]


def _run_one(rank, spec, seen):
    op = spec.op
    runner = Runner(rank.rank, plan_for(spec), op, rank.device)
    runner.reset()
    seen.update(isend=0, irecv=0)
    runner.run()
    handed = seen["isend"], seen["irecv"]
    first = verify(runner.result(), expected(ops.REGISTRY[op.op], rank.rank, op))
    told = runner.sent, runner.received
    if rank.world_size > 4 or op.numel > 1000:
        return first.wrong, first.checked, handed, told
    runner.reset()
    runner.run()
    again = verify(runner.result(), expected(ops.REGISTRY[op.op], rank.rank, op))
    return first.wrong + again.wrong, first.checked, handed, told


def assert_all_right(specs, done):
    assert done.ok, done.verdict
    for spec, *ranks in zip(specs, *done.values, strict=True):
        counts = count(plan_for(spec), DTYPES[spec.op.dtype].itemsize)
        wanted = list(zip(counts.sent, counts.received, strict=True))
        assert [wrong for wrong, *_ in ranks] == [0] * len(ranks), spec
        assert [handed for *_, handed, _ in ranks] == wanted, spec
        assert [told for *_, told in ranks] == wanted, spec
        assert sum(checked for _, checked, *_ in ranks) or not spec.op.numel, spec


@pytest.mark.parametrize("n", range(1, 9))
def test_every_algorithm_is_right_and_moves_the_bytes_that_were_counted(n):
    specs = list(cases(n))
    assert_all_right(specs, run_world(world(n), one_after_the_other, (specs,)))


def every_dtype(n):
    """One algorithm that packs and reduces, one that copies: all that torch has arithmetic for."""
    for dtype in DTYPES.values():
        yield TraceSpec(spec_of("all_to_all", n, 3, dtype=dtype.name), "bruck")
        for reduction in REDUCTIONS.values():
            spec = spec_of("reduce_scatter", n, 3, reduction.name, dtype=dtype.name)
            try:
                check_traceable(spec)
            except UsageError:
                continue
            if dtype.kind in reduction.kinds:
                yield TraceSpec(spec, "halving")


def test_every_dtype_and_reduce_op_that_is_not_refused_works():
    specs = list(every_dtype(3))
    assert len(specs) > 80
    assert_all_right(specs, run_world(world(3), one_after_the_other, (specs,)))


@pytest.mark.mpi
@pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None,
    reason="needs mpi4py and an MPI library: pip install 'distdemo[mpi]'",
)
def test_every_algorithm_is_right_over_mpi():
    specs = [*cases(3), TraceSpec(spec_of("all_reduce", 3, 1 << 20), "doubling")]
    assert_all_right(specs, run_prepared(world(3, backend="mpi"), one_after_the_other, (specs,)))


def test_an_exchange_of_large_messages_does_not_deadlock():
    large = 4 << 20  # float32 elements: 16 MiB both ways at once
    specs = [TraceSpec(spec_of("all_reduce", 2, large), "doubling")]
    assert_all_right(specs, run_world(world(2), one_after_the_other, (specs,)))


def test_data_of_the_users_own_is_right_too():
    values = ((True, True), (True, False), (True, True))
    gathered = spec_of("all_gather", 3, 2, dtype="bool", values=values)
    matrix = OpSpec("all_reduce", 3, shape=(2, 3), reduce_op="min", seed=7)
    scalar = OpSpec("broadcast", 3, shape=(), root=2, fill="rank")
    specs = [
        TraceSpec(gathered, "bruck"),
        TraceSpec(matrix, "ring"),
        TraceSpec(scalar, "chain"),
    ]
    assert_all_right(specs, run_world(world(3), one_after_the_other, (specs,)))


def test_a_rank_that_sends_what_it_does_not_have_is_refused_before_it_runs():
    spec = TraceSpec(spec_of("broadcast", 4, 4), "tree")

    class Backwards(TreeBroadcast):
        def rounds(self, n, chunks):
            return reversed(list(super().rounds(n, chunks)))

    plan = plan_of(Backwards(), 4, 4)
    with pytest.raises(ScheduleError, match="rank 1 sends chunk 0, which it does not have"):
        Runner(1, plan, spec.op, "cpu")
