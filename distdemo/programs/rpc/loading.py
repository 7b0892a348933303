"""Load what RPC needs, quietly and once: before ranks are forked, or in a rank that was spawned."""

from __future__ import annotations

import gc
from importlib import import_module

from distdemo.errors import UsageError
from distdemo.torch_compiler import load_compiler, without_traces
from distdemo.torch_import import load_torch

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
    was_enabled = gc.isenabled()
    gc.disable()  # it would walk through everything that is loaded
    try:
        load_compiler()
        with without_traces():
            for module in MODULES:
                import_module(module)
    finally:
        if was_enabled:
            gc.enable()


def _check(*, there: bool) -> None:
    if not there:
        raise UsageError(
            "distdemo rpc can't be run here.",
            "This torch was built without torch.distributed.rpc, or without TensorPipe under it.",
            "Take a torch wheel for Linux; on Windows RPC does not exist.",
        )
