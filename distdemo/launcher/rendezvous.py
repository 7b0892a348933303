"""Rendezvous of the ranks on one machine, which other machines can't reach.

The store is a FileStore whose file is in memory on Linux, and elsewhere in the temporary folder,
from which it is removed even if the launcher is killed. Only this user can open it.

A user's program that creates its group itself, for instance one written for torchrun, reads RANK,
WORLD_SIZE, MASTER_ADDR and similar variables; its groups meet in the same store.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from distdemo.launcher.process_tree import shared_file
from distdemo.platform import system

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from torch._C._distributed_c10d import Store

HOST = "127.0.0.1"
RECORDER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Variables with the number of calls that torch's flight recorder keeps; the second is older."""


class Rendezvous:
    """Base class for the ways in which the ranks of a world find each other."""

    prefix: str = ""
    """Prefix of this world's keys in a shared store."""

    def store(self, world_size: int, timeout: timedelta, send: Callable[[object], None]) -> Store:
        """Return the store that all ranks share. Collective.

        Args:
            world_size: Number of ranks.
            timeout: Timeout of the store's operations.
            send: Function that sends a value to the launcher.
        """
        raise NotImplementedError

    def leave(self) -> None:
        """Leave the world; called before exit if every rank succeeded. Collective."""


@dataclass(frozen=True, slots=True)
class LocalRanks:
    """Ranks of a world that this process starts, and their rendezvous.

    Attributes:
        ranks: Numbers of the ranks; all ranks, in a world on one machine.
        rendezvous: Rendezvous of the whole world.
        local_rank: Local rank of the first of them, which determines its GPU.
        local_size: Number of ranks on their host, or 1 if unknown.
        interface: Network interface for the backends, unless the user set one; empty for the
            loopback interface, whatever the user set; None if the rendezvous determines it.
        exit_timeout_s: Seconds that ranks get to exit on their own after success.
    """

    ranks: range
    rendezvous: Rendezvous
    local_rank: int = 0
    local_size: int = 1
    interface: str | None = ""
    exit_timeout_s: float = 0.7


def set_recorder(calls: int | None) -> None:
    """Set the number of calls that torch's flight recorder keeps, unless the user has."""
    if calls is not None and not any(map(os.environ.get, RECORDER_SIZES)):
        os.environ[RECORDER_SIZES[0]] = str(calls)


def set_interface(interface: str) -> None:
    """Bind this rank's backends to an interface, unless the user set another one.

    Args:
        interface: Name of the interface; empty for loopback, which overrides the user's setting,
            because that setting is meant for worlds on several machines.
    """
    name = interface or system.loopback_interface()
    if name:
        put = os.environ.setdefault if interface else os.environ.__setitem__
        put("GLOO_SOCKET_IFNAME", name)
        put("NCCL_SOCKET_IFNAME", f"={name}")
        put("TP_SOCKET_IFNAME", name)  # TensorPipe's, for RPC


# ------------------------------------------------------------------------------------------ a file


@dataclass(frozen=True, slots=True)
class FileRendezvous(Rendezvous):
    """Path of the FileStore."""

    path: str

    def store(self, world_size: int, timeout: timedelta, send: Callable[[object], None]) -> Store:
        """Return the FileStore at this path."""
        from torch._C._distributed_c10d import FileStore

        store = FileStore(self.path, world_size)
        store.set_timeout(timeout)
        return store


@contextmanager
def file_rendezvous() -> Iterator[FileRendezvous]:
    """Create the store file of one world, and close it when the block ends."""
    with shared_file("store") as file:
        yield FileRendezvous(file.path)


# ------------------------------------------------------------------------------- a store over TCP


@dataclass(frozen=True, slots=True)
class StoreRendezvous(Rendezvous):
    """A TCPStore that another process serves."""

    host: str
    port: int
    prefix: str

    def store(self, world_size: int, timeout: timedelta, send: Callable[[object], None]) -> Store:
        """Connect to the store. Collective."""
        return connect_store(self.host, self.port, timeout)


def connect_store(host: str, port: int, timeout: timedelta) -> Store:
    """Connect to the TCPStore at this address."""
    from torch._C._distributed_c10d import TCPStore

    return TCPStore(host, port, None, False, timeout, wait_for_workers=False)


# ------------------------------------------------------------------ a program that makes its group


def announce(store: Store) -> None:
    """Make this process's program meet in this store, as under torchrun; RANK and more are set.

    Many programs set MASTER_ADDR and MASTER_PORT themselves, to an address at which no store
    listens, so this replaces torch's function (the same from 2.8 to 2.15). Each default group gets
    new keys.
    """
    from torch._C._distributed_c10d import PrefixStore

    os.environ.update(
        MASTER_ADDR=HOST,
        MASTER_PORT="29500",
        GROUP_RANK="0",
        TORCHELASTIC_RESTART_COUNT="0",
        TORCHELASTIC_RUN_ID="distdemo",
    )
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    times = Counter[int]()  # by port: requests of the program for the store

    def find(
        _host: str, port: int, _rank: int, _size: int, timeout: timedelta, *_: Any, **__: Any
    ) -> Store:
        times[port] += 1
        group_store = PrefixStore(f"{port}/{times[port]}", store)
        group_store.set_timeout(timeout)
        return group_store

    # torch.distributed.rendezvous, as an attribute, is a function of that name.
    vars(import_module("torch.distributed.rendezvous"))["_create_c10d_store"] = find
