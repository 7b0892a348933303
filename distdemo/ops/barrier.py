"""barrier: nobody goes on before all have come; the monitored one names who does not."""

from __future__ import annotations

from functools import partial

from distdemo.ops.contract import Buffers, Call, Form, Group, Op, Traffic, Words
from distdemo.ops.spec import OpSpec


class Barrier(Op):
    """No data: every rank is let go once all have arrived.

    Arrived and left, rank 1 being half a second late::

        0.0 s    0.5 s  # rank 0
        0.5 s    0.5 s  # rank 1
    """

    name = "barrier"
    takes = frozenset({"async_op", "straggler", "monitored"})
    forms = (
        Form("plain", "barrier", {"monitored": False}),
        Form(
            "monitored",
            "monitored_barrier",
            {"monitored": True},
            "--monitored",
            frozenset({"async_op"}),
            "A barrier with a time limit that names the ranks which did not come.",
        ),
    )
    meets = True
    default_shape = ()
    words = Words(
        summary="Nobody goes on before all have come.",
        when="Let one rank download or write a file before the others read it; line ranks up "
        "before timing.",
        mistake="Calling it on some ranks only, inside `if rank == 0:` say. Those that call it "
        "wait until the timeout; monitored_barrier names the ones that did not.",
        call="dist.barrier()",
    )

    def pieces(self, rank: int, spec: OpSpec) -> int:
        """Nothing is given."""
        return 0

    def result(self, rank: int, spec: OpSpec) -> tuple[()]:
        """Nothing is got."""
        return ()

    def value_labels(self, spec: OpSpec) -> tuple[int, ...]:
        """It takes no values."""
        return ()

    def traffic(self, spec: OpSpec) -> Traffic:
        """No payload: a barrier has a latency only."""
        return Traffic(0, "no payload", 1.0, "1")

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> Call:
        """``dist.barrier`` or ``dist.monitored_barrier``."""
        import torch.distributed as dist

        if not spec.monitored:
            own = _own_device(group)
            return partial(dist.barrier, group=group, async_op=async_op, device_ids=own)
        from datetime import timedelta

        limit = timedelta(seconds=spec.monitor_timeout_s)
        return partial(dist.monitored_barrier, group=group, timeout=limit, wait_all_ranks=True)


def _own_device(group: Group) -> list[int] | None:
    """The GPU that the barrier of a group for GPUs alone runs on: this rank's own.

    torch would guess it. A group that takes CPU tensors meets without a GPU.
    """
    import torch
    import torch.distributed as dist

    if "cpu:" in dist.get_backend_config(group):  # cpu:gloo,cuda:nccl
        return None
    return [torch.cuda.current_device()]
