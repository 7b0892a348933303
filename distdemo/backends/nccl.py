"""nccl: NVIDIA's collectives between GPUs, one rank a GPU."""

from __future__ import annotations

from pathlib import Path

from distdemo.backends.contract import COMMON_DTYPES, Backend


class Nccl(Backend):
    """NCCL takes one rank a GPU: two ranks on one GPU are refused by the library itself."""

    name = "nccl"
    summary = "GPU tensors over NVLink, PCIe and networks; needs a GPU for every rank."
    devices = ("cuda",)
    rank_per_gpu = True
    # NCCL 2.24's types; complex ones are sent as pairs of real ones.
    dtypes = COMMON_DTYPES | {"bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"}
    get = "It is in the CUDA wheels of torch: install one on a machine with NVIDIA GPUs."

    def missing(self) -> str | None:
        """Why this torch can't use it; None if it can."""
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_nccl_available()):
            return "This torch was built without NCCL."
        return None if count_gpus() else "There is no GPU on this machine that torch can use."

    def version(self) -> str:
        """Of the NCCL that torch brings."""
        import torch

        found = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]  # torch does not say its type
        return ".".join(map(str, found)) if isinstance(found, tuple) else str(found)

    def _refuses_reduction(self, kind: str, reduce_op: str) -> str | None:
        if reduce_op in ("band", "bor", "bxor"):
            return "NCCL has no bitwise reductions."
        if kind == "complex" and reduce_op not in ("sum", "avg"):
            return f"torch.distributed refuses {reduce_op} on complex tensors: sum and avg only."
        return super()._refuses_reduction(kind, reduce_op)


def gpus_in_sight() -> bool:
    """Whether the system shows a GPU at all, asked without torch."""
    nodes = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")
    return any(Path(node).exists() for node in nodes)


def count_gpus() -> int:
    """How many GPUs torch could use. Imports torch, does not initialise CUDA in this process.

    torch asks NVML for the number; only where NVML is missing does it fall back to the driver.
    """
    import torch

    return torch.cuda.device_count() if gpus_in_sight() else 0
