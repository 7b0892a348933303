"""gloo: collectives over TCP for CPU tensors, part of every torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdemo.backends.contract import COMMON_DTYPES, Backend

if TYPE_CHECKING:
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec


class Gloo(Backend):
    """The gloo backend. Its capabilities are in its maps; this class explains the gaps."""

    name = "gloo"
    summary = "CPU tensors over TCP; in every torch build."
    devices = ("cpu", "cuda")
    dtypes = COMMON_DTYPES | {"bool", "complex64", "complex128"}
    has_monitored_barrier = True
    how_to_install = "It is in every wheel of torch."
    # Tried with torch 2.8, 2.13 and 2.15: other ops copy such tensors, as gather does since 2.9, or
    # raise, as all_to_all_single does for its input.
    ignores_gaps = frozenset(
        {"all_reduce", "broadcast", "reduce", "scatter", "gather", "reduce_scatter"}
        | {"all_to_all_single"}
    )
    # reduce_scatter accepts them. torch 2.8 has no all_to_all with lists.
    needs_even = frozenset({"all_gather", "all_to_all", "gather", "scatter"})
    needs_handles = True
    buffers_sends = False
    sends_to_itself = False

    def why_unsupported(self, op: Op, spec: OpSpec, device: str | None = None) -> str | None:
        """Return the reason gloo can't run the op. send and recv of CUDA tensors need no map.

        Sources: the table of backends in PyTorch's docs/source/distributed.md, 2.8 to 2.15. On an
        H200 with torch 2.11, all collectives that take CPU tensors also took CUDA tensors.
        """
        if device == "cuda" and "pattern" in op.takes and not spec.objects:
            return (
                "gloo sends and receives only CPU tensors; its collectives also take CUDA tensors."
            )
        if device == "cuda" and spec.dtype == "bool" and spec.reduce_op == "sum":
            return self.reason(op, spec)  # reduce_scatter_single is right for CPU tensors only
        return super().why_unsupported(op, spec, device)

    def reason(self, op: Op, spec: OpSpec) -> str | None:
        """Return the known reason, including those specific to gloo."""
        if spec.splits is not None and spec.variant == "list":
            return "gloo's all_to_all needs parts of equal length; all_to_all_single doesn't."
        if op.name == "gather" and spec.variant == "single":
            return "gloo has no gather_single; use gather with a list."
        if op.name == "gather" and spec.dtype.startswith("complex") and not spec.objects:
            return "gloo's gather doesn't support complex tensors; its all_gather does."
        if spec.dtype == "bool" and spec.reduce_op == "sum":
            return "gloo adds bool tensors as bytes: 256 times True would be False."
        return super().reason(op, spec)
