"""xccl: Intel's collectives between its GPUs, in the XPU builds of torch."""

from __future__ import annotations

from distdemo.backends.contract import COMMON_DTYPES, Backend
from distdemo.bench.yardsticks import DEVICE_COPY


class Xccl(Backend):
    """oneCCL behind torch's own interface, from torch 2.8 on."""

    name = "xccl"
    summary = "Tensors of Intel GPUs over oneCCL; only in torch's XPU builds."
    devices = ("xpu",)
    transport = DEVICE_COPY
    dtypes = COMMON_DTYPES | {"bool", "complex64", "complex128"}
    get = "Install an XPU wheel of torch on a machine with Intel GPUs."

    def missing(self) -> str | None:
        """Why this torch can't use it; None if it can."""
        import torch.distributed as dist

        # Not in every release that distdemo runs on.
        built = getattr(dist, "is_xccl_available", lambda: False)
        if not (dist.is_available() and built()):
            return "This torch was built without XCCL, as the CPU and CUDA wheels are."
        return "distdemo does not know Intel GPUs yet."
