"""nccl: NVIDIA's collectives between GPUs, with one rank per GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdemo.backends.contract import COMMON_DTYPES, Backend
from distdemo.backends.gpus import count_gpus, has_gpu, why_none

if TYPE_CHECKING:
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec

_FACTORS = frozenset({"float16", "float32", "float64"})
"""Dtypes of premul_sum in torch 2.8 to 2.15 (``unpackPreMulSum`` in ProcessGroupNCCL.cpp). bfloat16
was added later, and some releases give its factors the wrong type."""

_SERIAL = (
    "NCCL runs a rank's calls in order: if every rank calls irecv before isend, all wait forever. "
    "Batched calls have no order: --pattern exchange."
)
"""Source: "unbatched P2P ops are treated as independent collective ops, and are thus serialized",
a warning of ProcessGroupNCCL for groups that are bound to a device, as distdemo's are."""


class Nccl(Backend):
    """The NCCL backend. The library rejects two ranks on one GPU."""

    name = "nccl"
    summary = "GPU tensors over NVLink, PCIe and networks; needs one GPU per rank."
    devices = ("cuda",)
    rank_per_gpu = True
    unsupported_reduce_ops = dict.fromkeys(
        ("band", "bor", "bxor"), "NCCL has no bitwise reductions."
    )
    # NCCL 2.24's types; complex ones are sent as pairs of real ones.
    dtypes = COMMON_DTYPES | {"bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"}
    # Sources, in ProcessGroupNCCL.cpp of torch 2.8 to 2.15: ``gather`` and ``scatter`` call
    # ``assertTypeAndSizesMatch``. ``allgather`` and ``reduce_scatter`` call ``_broadcast_oop`` or
    # ``_reduce_oop`` once per tensor if the sizes differ. Otherwise they copy the whole list to or
    # from one tensor, of which NCCL uses as much as there are ranks.
    needs_even = frozenset({"gather", "scatter"})
    ignores_rest = frozenset({"all_gather", "reduce_scatter"})
    orders_messages = True
    how_to_install = "Install a CUDA wheel of torch on a machine with NVIDIA GPUs."

    def missing(self) -> str | None:
        """Return the reason this torch can't use NCCL, or None if it can."""
        import torch.distributed as dist

        if dist.is_available() and dist.is_nccl_available():
            return None if count_gpus() else why_none()[0]
        without = "This torch was built without NCCL."
        return f"{without} {why_none()[0]}" if has_gpu() and not count_gpus() else without

    def version(self) -> str:
        """Return the version of torch's NCCL, such as ``2.27.3``. Doesn't initialise CUDA."""
        import torch
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_nccl_available()):
            return ""
        version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]  # untyped in torch
        return ".".join(map(str, version)) if isinstance(version, tuple) else str(version)

    def reason(self, op: Op, spec: OpSpec) -> str | None:
        """Return the known reason, including those specific to NCCL.

        Sources of those by op: torch 2.11 with NCCL 2.28.9 on an H200. "Unconvertible NCCL type
        ComplexFloat" is torch's message for gather, "invalid argument" NCCL's for avg of float8.
        """
        if spec.objects or op.is_barrier:
            return super().reason(op, spec)
        if spec.dtype not in self.dtypes:  # applies to send and recv too
            return f"NCCL doesn't support {spec.dtype}."
        if spec.pattern == "ring" and spec.async_op:
            return _SERIAL
        if spec.reduce_op == "premul_sum" and spec.dtype not in _FACTORS:
            return f"NCCL's premul_sum supports only {', '.join(sorted(_FACTORS))}."
        if op.name == "gather" and spec.dtype.startswith("complex"):
            return "nccl's gather doesn't support complex tensors; its all_gather does."
        if spec.reduce_op == "avg" and spec.dtype.startswith("float8"):
            return "NCCL can't average float8 tensors; it can add them."
        return super().reason(op, spec)
