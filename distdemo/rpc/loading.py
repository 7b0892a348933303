"""Load what RPC needs, quietly and once: before ranks are forked, or in a rank that was spawned."""

from __future__ import annotations

from distdemo.errors import UsageError
from distdemo.launcher.torch_compiler import load_parts
from distdemo.launcher.torch_import import load_torch

MODULES = ("torch.distributed.rpc", "torch.distributed.autograd", "torch.distributed.optim")


def load_rpc() -> None:
    """Import torch's modules for RPC and what they need.

    No thread is left behind: the process can still be forked.

    Raises:
        UsageError: torch is missing, or was built without RPC.
    """
    load_torch()
    from torch.distributed import rpc

    _check(there=rpc.is_available() and hasattr(rpc, "TensorPipeRpcBackendOptions"))
    load_parts(MODULES)


def _check(*, there: bool) -> None:
    if not there:
        raise UsageError(
            "distdemo rpc can't be run here.",
            "This torch was built without torch.distributed.rpc, or without TensorPipe under it.",
            "Take a torch wheel for Linux; on Windows RPC does not exist.",
        )
