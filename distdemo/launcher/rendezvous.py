"""Where the ranks of one machine find each other; nothing of it can be reached from another one.

Ours meet at a FileStore. On Linux its file lives in memory only (``memfd_create``) and is reached
through the launcher's entry in /proc, which the kernel opens to this user alone. It has no name,
needs no temporary directory, and is gone with the last process that holds it, however that process
ended. Elsewhere it is a file in a private directory (mode 0700) that is removed at the end.

A program of the user's own that makes its group itself, as those written for torchrun do, reads
RANK, WORLD_SIZE, MASTER_ADDR and their like. As under torchrun the store is held by the launcher
(TORCHELASTIC_USE_AGENT_STORE; torch/distributed/elastic/agent/server/local_elastic_agent.py), but
it listens on loopback alone: ``TCPStore`` listens everywhere unless it is given a socket that is
bound already (``master_listen_fd``).
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from distdemo.errors import UsageError

if TYPE_CHECKING:
    from datetime import timedelta

    from torch._C._distributed_c10d import Store

    from distdemo.launcher.rank import Rank

HOST = "127.0.0.1"


class Rendezvous:
    """Where the ranks of a world find each other."""

    directory: str | None = None
    """What has to be removed with it, if there is something."""
    prefix: str = ""
    """Prefix of this world's keys, if the store has others, too."""

    def store(self, rank: Rank, patience: timedelta) -> Store:
        """Collective: the store that all ranks share; it waits no longer for a key."""
        raise NotImplementedError

    def leave(self) -> None:
        """Collective: what ranks that all went well do together before they end."""


@dataclass(frozen=True, slots=True)
class LocalRanks:
    """The ranks of a world that this process starts, and how they meet the others.

    Attributes:
        ranks: their numbers; those of a world on one machine are all of it.
        rendezvous: where the ranks of the whole world find each other.
        local_rank: the number of the first of them among those of its host; it chooses the GPU.
        local_size: how many ranks its host has, as far as is known.
        interface: the network interface that backends take where the user named none; empty: the
            loopback interface, whatever the user named, as nobody else needs to reach us; None:
            it turns out at the rendezvous.
        farewell: seconds that ranks which went well get to end by themselves.
    """

    ranks: range
    rendezvous: Rendezvous
    local_rank: int = 0
    local_size: int = 1
    interface: str | None = ""
    farewell: float = 0.7


def take_interface(interface: str) -> None:
    """In a rank: bind the backends to this interface, unless the user named another.

    Args:
        interface: its name; empty: the one that no other machine can reach. That overrides the
            user's setting, which is meant for worlds that span machines, as this one doesn't.
    """
    name = interface
    if not name:
        names = [name for _, name in socket.if_nameindex()]
        name = next((name for name in ("lo", "lo0") if name in names), "")
    if name:
        put = os.environ.setdefault if interface else os.environ.__setitem__
        put("GLOO_SOCKET_IFNAME", name)
        put("NCCL_SOCKET_IFNAME", f"={name}")
        put("TP_SOCKET_IFNAME", name)  # TensorPipe's, for RPC


# ------------------------------------------------------------------------------------------ a file


@dataclass(frozen=True, slots=True)
class FileRendezvous(Rendezvous):
    """The path of the FileStore, and the directory to remove with it, if there is one."""

    path: str
    directory: str | None = None

    def store(self, rank: Rank, patience: timedelta) -> Store:
        """The FileStore at this path."""
        from torch._C._distributed_c10d import FileStore

        found = FileStore(self.path, rank.world_size)
        found.set_timeout(patience)
        return found


@contextmanager
def file_rendezvous() -> Iterator[FileRendezvous]:
    """A store file for one world, gone when the block ends.

    Raises:
        UsageError: no private directory can be made where one is needed.
    """
    fd = _memory_file()
    if fd is not None:
        try:
            yield FileRendezvous(f"/proc/{os.getpid()}/fd/{fd}")
        finally:
            os.close(fd)
        return
    try:
        directory = tempfile.mkdtemp(prefix="distdemo-")
    except OSError as error:
        raise UsageError(
            "The ranks have no place to meet: no private directory could be made.",
            str(error),
            "Set TMPDIR to a directory that you can write to.",
        ) from error
    try:
        yield FileRendezvous(os.path.join(directory, "store"), directory)  # noqa: PTH118 - a str for torch
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _memory_file() -> int | None:
    """A nameless file in memory; None where the system has none or hides /proc."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        fd = os.memfd_create("distdemo-store", os.MFD_CLOEXEC)
    except OSError:
        return None
    if os.access(f"/proc/{os.getpid()}/fd/{fd}", os.R_OK | os.W_OK):
        return fd
    os.close(fd)
    return None


# ------------------------------------------------------------------------------- a store over TCP


@dataclass(frozen=True, slots=True)
class StoreRendezvous(Rendezvous):
    """A TCPStore that another process serves."""

    host: str
    port: int
    prefix: str

    def store(self, _: Rank, patience: timedelta) -> Store:
        """Collective: connect to it."""
        return self.connect(self.host, self.port, patience)

    @staticmethod
    def connect(host: str, port: int, patience: timedelta) -> Store:
        """Connect to the store at this address."""
        from torch._C._distributed_c10d import TCPStore

        return TCPStore(host, port, None, False, patience, wait_for_workers=False)


# ------------------------------------------------------------------- a store as torchrun's agent's


@dataclass(frozen=True, slots=True)
class AgentStore(Rendezvous):
    """The store at this address, which the launcher holds; in a joined world, rank 0 does."""

    port: int
    host: str = HOST

    def announce(self, rank: Rank) -> None:
        """Tell the program in this process who it is, and let it find the store."""
        os.environ.update(self.variables(rank.rank, rank.world_size, rank.local_rank))
        self.offer()

    def offer(self) -> None:
        """Let the program in this process find the store, with new keys for each group of all.

        Many programs set MASTER_ADDR and MASTER_PORT in their own code, where nobody listens here,
        so torch's own function is wrapped (the same from 2.8 to 2.15; 2.15 asks the variables too
        whether an agent has the store). A torch without it goes by the variables alone.
        """
        os.environ.update(self._address())
        # torch.distributed.rendezvous, as an attribute, is a function of that name.
        rendezvous = import_module("torch.distributed.rendezvous")
        create = getattr(rendezvous, "_create_c10d_store", None)
        if create is None:
            return
        from torch._C._distributed_c10d import PrefixStore

        times = Counter[int]()  # that a program has asked for the store at a port

        def find(_host: str, port: int, *rest: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's own
            os.environ.update(self._address())
            times[port] += 1
            store = create(self.host, self.port, *rest, **named)
            return PrefixStore(f"{port}/{times[port]}", store)

        vars(rendezvous)["_create_c10d_store"] = find

    def variables(self, rank: int, world_size: int, local_rank: int) -> dict[str, str]:
        """What torchrun tells a rank of a world on one machine, by the variables' names."""
        size = str(world_size)
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "ROLE_RANK": str(rank),
            "GROUP_RANK": "0",
            "WORLD_SIZE": size,
            "LOCAL_WORLD_SIZE": size,
            "ROLE_WORLD_SIZE": size,
            "GROUP_WORLD_SIZE": "1",
            "ROLE_NAME": "default",
            **self._address(),
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": "none",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get(
                "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"
            ),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        }

    def _address(self) -> dict[str, str]:
        return {
            "MASTER_ADDR": self.host,
            "MASTER_PORT": str(self.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }


class Agent:
    """The launcher's hold on the store: bound before ranks are forked, served after.

    Attributes:
        store: for the ranks, who may connect before it is served.
        descriptors: what a forked rank has to close.
    """

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._held: Any = None
        self._socket = socket.create_server((HOST, 0), backlog=max(128, world_size))
        self.store = AgentStore(self._socket.getsockname()[1])
        self.descriptors = (self._socket.fileno(),)

    def serve(self) -> None:
        """Answer, from a thread of torch's: all ranks must have been forked by then."""
        from torch._C._distributed_c10d import TCPStore

        port, fd = self.store.port, self._socket.detach()
        self._held = TCPStore(
            HOST, port, self._world_size, True, wait_for_workers=False, master_listen_fd=fd
        )

    def close(self) -> None:
        """Listen no more."""
        self._held = None
        self._socket.close()
