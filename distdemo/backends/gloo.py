"""gloo: collectives over TCP for CPU tensors, part of every torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdemo.backends.contract import COMMON_DTYPES, Backend, Transport

if TYPE_CHECKING:
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec


class Gloo(Backend):
    """What it takes is in its maps; here are the reasons in words."""

    name = "gloo"
    summary = "CPU tensors over TCP; in every torch build."
    devices = ("cpu", "cuda")
    transport = Transport.TCP
    dtypes = COMMON_DTYPES | {"bool", "complex64", "complex128"}
    monitors = True
    get = "It is in every wheel of torch."

    def missing(self) -> str | None:
        """Why this torch can't use it; None if it can."""
        import torch.distributed as dist

        if dist.is_available() and dist.is_gloo_available():
            return None
        return "This torch was built without gloo."

    def refuses(self, op: Op, spec: OpSpec, device: str | None = None) -> str | None:
        """As the contract says; send and recv of CUDA tensors need no map.

        Source: the table of backends in PyTorch's docs/source/distributed.md, 2.8 to 2.15.
        """
        if device == "cuda" and "pattern" in op.takes and not spec.objects:
            return "gloo sends and receives CPU tensors alone; its collectives take CUDA tensors."
        return super().refuses(op, spec, device)

    def reason(self, op: Op, spec: OpSpec) -> str | None:
        """As the contract says, and some that are gloo's own."""
        if spec.splits is not None and spec.variant == "list":
            return (
                "gloo's all_to_all takes parts of one length; all_to_all_single takes uneven ones."
            )
        if op.name == "gather" and spec.variant == "single":
            return "gloo has no gather_single; its gather fills a list."
        if op.name == "gather" and spec.dtype.startswith("complex") and not spec.objects:
            return "gloo's gather takes no complex tensors, though its all_gather does."
        return super().reason(op, spec)

    def _refuses_reduction(self, kind: str, reduce_op: str) -> str | None:
        if reduce_op == "premul_sum":
            return "premul_sum is NCCL's alone."
        if kind == "bool" and reduce_op == "sum":
            return "gloo adds bool tensors as bytes: 256 times True would be False."
        return super()._refuses_reduction(kind, reduce_op)
