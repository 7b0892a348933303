"""What every worker runs: it joins the others over RPC and answers; worker 0 makes the calls."""

from __future__ import annotations

import resource
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distdemo.errors import UsageError
from distdemo.launcher.torch_import import load_compiler, load_torch
from distdemo.rpc.records import RpcCall, worker

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from distdemo.launcher.rank import Rank


def load_rpc() -> None:
    """Import torch's modules for RPC, quietly and once: before ranks are forked, or in a rank.

    Raises:
        UsageError: torch is missing, or was built without RPC.
    """
    load_torch()
    from torch.distributed import rpc

    if not (rpc.is_available() and hasattr(rpc, "TensorPipeRpcBackendOptions")):
        raise UsageError(
            "distdemo rpc can't be run here.",
            "This torch was built without torch.distributed.rpc, or without TensorPipe under it.",
            "Take a torch wheel for Linux; on Windows RPC does not exist.",
        )
    load_compiler(("distdemo.rpc.calls",))


def run(rank: Rank, limit_s: float) -> tuple[RpcCall, ...] | None:
    """Collective: be a worker; rank 0 makes all the calls and returns them.

    Args:
        rank: this process's.
        limit_s: that a call may take. The launcher judges earlier; this is a second net.
    """
    load_rpc()
    from torch.distributed import rpc
    from torch.distributed.rendezvous import register_rendezvous_handler

    from distdemo.rpc.calls import Timeline, make_calls, take_step

    _keep_torch_quiet()
    with suppress(OSError, ValueError):  # TensorPipe takes some 60 files for each other worker
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def meet(_url: str, **_: Any) -> Iterator[tuple[Store, int, int]]:  # noqa: ANN401 - torch's own
        yield rank.store("rpc"), rank.rank, rank.world_size  # so that no port is opened for it

    register_rendezvous_handler("distdemo", meet)  # type: ignore[no-untyped-call]  # torch does not say its type
    options = rpc.TensorPipeRpcBackendOptions(init_method="distdemo://", rpc_timeout=limit_s)
    rpc.init_rpc(  # type: ignore[no-untyped-call]  # likewise
        worker(rank.rank),
        rank=rank.rank,
        world_size=rank.world_size,
        rpc_backend_options=options,
    )
    rank.reach("connected")
    found = None
    if rank.rank == 0:
        timeline = Timeline(rank)
        make_calls(timeline, rank.world_size)
        take_step(timeline, rank.world_size)
        found = tuple(sorted(timeline.calls, key=lambda call: call.start_s))
        rank.reach("done")
    rpc.shutdown()  # the others answer until all are here; after an exception nobody comes
    return found


def _keep_torch_quiet() -> None:
    """Keep what torch says of its own insides out of what this rank writes.

    One of its warnings removes every filter before it is shown, hence the second way. And torch
    prints each exception that crosses back, on the callee too, which nobody asked for.
    """
    from torch.distributed.rpc import internal

    internal.print = lambda *_, **__: None  # type: ignore[attr-defined]  # in place of the builtin, there alone
    warnings.filterwarnings("ignore", module=r"torch\.")
    show = warnings.showwarning

    def show_others(message: Any, category: Any, filename: str, *more: Any) -> None:  # noqa: ANN401 - as Python has them
        if "/torch/" not in filename:
            show(message, category, filename, *more)

    warnings.showwarning = show_others  # type: ignore[assignment]  # it is called with positions alone
