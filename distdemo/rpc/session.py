"""The time in which this rank is a worker: connected to all others, answering their calls."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from torch.distributed import rpc
from torch.distributed.rendezvous import register_rendezvous_handler
from torch.distributed.rpc import internal

from distdemo.rpc.records import name_of

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from distdemo.launcher.rank import Rank

SCHEME = "distdemo"
"""Of the address at which workers meet: the world's own store, so that no port is opened for it."""


@contextmanager
def connected(rank: Rank, patience: float) -> Iterator[None]:
    """Collective: within the block this rank is a worker; all leave it together.

    A worker that has nothing to call ends the block at once: it then answers until all are done.
    After an exception it leaves alone, as the others may never come.

    Args:
        rank: this process's.
        patience: seconds that a call may take. The launcher judges earlier; this is a second net.
    """
    _silence()
    _open_many_files()
    _meet_at(rank)
    rpc.init_rpc(  # type: ignore[no-untyped-call]  # torch does not say its type
        name_of(rank.rank),
        rank=rank.rank,
        world_size=rank.world_size,
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            init_method=f"{SCHEME}://", rpc_timeout=patience
        ),
    )
    rank.reach("connected")
    yield
    rpc.shutdown()


def _meet_at(rank: Rank) -> None:
    """Have the workers of this process's world find each other at its store."""

    def rendezvous(_url: str, **_: Any) -> Iterator[tuple[Store, int, int]]:  # noqa: ANN401 - torch's own
        yield rank.store("rpc"), rank.rank, rank.world_size

    register_rendezvous_handler(SCHEME, rendezvous)  # type: ignore[no-untyped-call]  # likewise


def _say_nothing(*_: object, **__: object) -> None:
    pass


def _open_many_files() -> None:
    """Raise the soft limit on open files: TensorPipe takes some 60 for each other worker."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # what the system has no more of is found by init_rpc
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _silence() -> None:
    """Keep torch's words about its own insides from what this rank writes.

    One of its warnings switches every filter off before it speaks, hence the second way. And it
    prints each exception that crosses back, on the callee too, where nobody asked for it.
    """
    internal.print = _say_nothing  # type: ignore[attr-defined]  # in place of the builtin, there alone
    warnings.filterwarnings("ignore", module=r"torch\.")
    tell = warnings.showwarning

    def show(  # noqa: PLR0913, PLR0917 - the form that Python prescribes
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if "/torch/" not in filename.replace("\\", "/"):
            tell(message, category, filename, lineno, file or sys.stderr, line)

    warnings.showwarning = show
