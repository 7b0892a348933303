"""gloo: collectives over TCP for CPU tensors, part of every torch."""

from __future__ import annotations

from distdemo.backends.contract import COMMON_DTYPES, Backend


class Gloo(Backend):
    """What gloo takes was tried with torch 2.13, op by op, type by type."""

    name = "gloo"
    summary = "CPU tensors over TCP; in every torch build."
    devices = ("cpu", "cuda")
    dtypes = COMMON_DTYPES | {"bool", "complex64", "complex128"}
    sends = frozenset({"int16"})

    def missing(self) -> str | None:
        """Why this torch can't use it; None if it can."""
        import torch.distributed as dist

        if dist.is_available() and dist.is_gloo_available():
            return None
        return "This torch was built without gloo."

    def refuses(self, op: str, dtype: str, reduce_op: str | None) -> str | None:
        """As the contract says; gloo's gather takes no complex tensors."""
        if op == "gather" and dtype.startswith("complex"):
            return "gloo's gather takes no complex tensors, though its all_gather does."
        return super().refuses(op, dtype, reduce_op)

    def _refuses_reduction(self, kind: str, reduce_op: str) -> str | None:
        if kind == "complex" and reduce_op not in ("sum", "avg"):
            return f"torch.distributed refuses {reduce_op} on complex tensors: sum and avg only."
        if kind == "bool" and reduce_op == "sum":
            return "gloo adds bool tensors as bytes: 256 times True would be False."
        return super()._refuses_reduction(kind, reduce_op)
