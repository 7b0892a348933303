"""barrier: no rank continues until all have arrived; the monitored one names missing ranks."""

from __future__ import annotations

from functools import partial

from distdemo.ops.contract import BoundCall, Buffers, Form, Group, Op, OpDoc, Traffic
from distdemo.ops.spec import OpSpec


class Barrier(Op):
    """No data: every rank is released when all have arrived.

    Times of arrival and release if rank 1 is half a second late::

        0.0 s    0.5 s  # rank 0
        0.5 s    0.5 s  # rank 1
    """

    name = "barrier"
    takes = frozenset({"async_op", "straggler", "monitored"})
    forms = (
        Form("plain", ("barrier",), {"monitored": False}),
        Form(
            "monitored",
            ("monitored_barrier",),
            {"monitored": True},
            {"monitored": True},
            frozenset({"async_op"}),
            "A barrier with a timeout that names the ranks that didn't arrive (gloo only).",
        ),
    )
    is_barrier = True
    default_shape = ()
    doc = OpDoc(
        summary="No rank continues until all have arrived.",
        when="Let one rank download or write a file before the other ranks read it; align ranks "
        "before timing.",
        mistake="Calling it on some ranks only, for example inside `if rank == 0:`. These ranks "
        "wait until the timeout. gloo's monitored_barrier names a missing rank; with "
        "wait_all_ranks=True it names all.",
        call="dist.barrier()",
    )

    def pieces(self, rank: int, spec: OpSpec) -> int:
        """Return 0: ranks give no data."""
        return 0

    def result(self, rank: int, spec: OpSpec) -> tuple[()]:
        """Return an empty result."""
        return ()

    def traffic(self, spec: OpSpec) -> Traffic:
        """Return no payload: a barrier only has a latency."""
        return Traffic(0, "no payload", 1.0, "1")

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> BoundCall:
        """Prepare ``dist.barrier`` or ``dist.monitored_barrier``."""
        import torch.distributed as dist

        if not spec.monitored:
            own = _own_device(group)
            return partial(dist.barrier, group=group, async_op=async_op, device_ids=own)
        from datetime import timedelta

        limit = timedelta(seconds=spec.monitor_timeout_s)
        return partial(dist.monitored_barrier, group=group, timeout=limit, wait_all_ranks=True)


def _own_device(group: Group) -> list[int] | None:
    """Return this rank's GPU for the barrier of a GPU-only group, or None.

    Without it torch guesses. A group that takes CPU tensors needs no GPU.
    """
    import torch
    import torch.distributed as dist

    if "cpu:" in dist.get_backend_config(group):  # cpu:gloo,cuda:nccl
        return None
    return [torch.cuda.current_device()]
