"""The function of every worker: join RPC and answer calls; worker 0 makes the calls."""

from __future__ import annotations

import resource
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distdemo.errors import UsageError
from distdemo.launcher.local import sends
from distdemo.launcher.torch_import import load_compiler, load_torch
from distdemo.rpc.records import RpcCall, worker

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from distdemo.launcher.rank import Rank

OPEN_MAX = 10_240  # where the limit on open files is infinite: macOS's for one process


def load_rpc() -> None:
    """Import torch's RPC modules quietly, before ranks are forked or in a rank.

    Raises:
        UsageError: torch is missing or was built without RPC.
    """
    load_torch()
    from torch.distributed import rpc

    if not (rpc.is_available() and hasattr(rpc, "TensorPipeRpcBackendOptions")):
        raise UsageError(
            "distdemo rpc can't run here.",
            "This torch was built without torch.distributed.rpc or without TensorPipe.",
            "Use a torch wheel for Linux; there is no RPC on Windows.",
        )
    load_compiler(("distdemo.rpc.calls",))


@sends(RpcCall)
def run(rank: Rank, timeout_s: float) -> tuple[RpcCall, ...] | None:
    """Run a worker; rank 0 makes all calls and returns them. Collective.

    Rank 0 sends each call before it is made, and None after the last.

    Args:
        rank: Rank of this process.
        timeout_s: Seconds until a call times out; the launcher's own limits are shorter.
    """
    load_rpc()
    from torch.distributed import rpc
    from torch.distributed.rendezvous import register_rendezvous_handler

    from distdemo.rpc.calls import CallRecorder, make_calls, take_step

    _silence_torch()
    with suppress(OSError, ValueError):  # TensorPipe opens about 60 files per peer
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        most = OPEN_MAX if hard == resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

    def rendezvous(_url: str, **_: Any) -> Iterator[tuple[Store, int, int]]:
        yield rank.store("rpc"), rank.rank, rank.world_size  # the existing store: no extra port

    register_rendezvous_handler("distdemo", rendezvous)  # type: ignore[no-untyped-call]  # untyped in torch
    options = rpc.TensorPipeRpcBackendOptions(init_method="distdemo://", rpc_timeout=timeout_s)
    rpc.init_rpc(  # type: ignore[no-untyped-call]  # likewise
        worker(rank.rank),
        rank=rank.rank,
        world_size=rank.world_size,
        rpc_backend_options=options,
    )
    rank.report_phase("connected")
    calls = None
    if rank.rank == 0:
        recorder = CallRecorder(rank)
        make_calls(recorder, rank.world_size)
        take_step(recorder, rank.world_size)
        calls = tuple(recorder.calls)
        rank.report_phase("done")
        rank.send(None)
    rpc.shutdown()  # waits for all workers, which answer until then; not reached after an exception
    return calls


def _silence_torch() -> None:
    """Silence torch's internal warnings and prints in this rank.

    One of the warnings resets all filters before it is shown, so `showwarning` is replaced, too.
    torch also prints each remote exception on the callee.
    """
    from torch.distributed.rpc import internal

    internal.print = lambda *_, **__: None  # type: ignore[attr-defined]  # shadows the builtin in that module only
    warnings.filterwarnings("ignore", module=r"torch\.")
    show = warnings.showwarning

    def show_others(message: Any, category: Any, filename: str, *more: Any) -> None:
        if "/torch/" not in filename:
            show(message, category, filename, *more)

    warnings.showwarning = show_others  # type: ignore[assignment]  # called with positional arguments only
