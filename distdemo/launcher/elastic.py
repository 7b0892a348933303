"""Ranks for programs that make their own group, as those written for torchrun do.

Such a program reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and their like, and calls
``init_process_group``. The variables are those of torchrun's agent (torch/distributed/elastic/
agent/server/local_elastic_agent.py), and as under torchrun the store is held by the launcher
(TORCHELASTIC_USE_AGENT_STORE). Unlike there it listens on loopback alone: ``TCPStore`` listens
everywhere unless it is given a socket that is bound already (``master_listen_fd``).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank
    from distdemo.launcher.records import WorldSpec

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class AgentRendezvous:
    """The store that the launcher holds at this port of the loopback interface."""

    port: int
    directory: None = None

    def leave(self) -> None:
        """Nothing: the launcher looks after the store."""

    def announce(self, rank: Rank) -> None:
        """Tell the program in this process who it is, and let it find the store."""
        os.environ.update(variables(rank.rank, rank.world_size, rank.local_rank, self.port))
        _lead_to(self.port)


class Agent:
    """The launcher's hold on the store: bound before ranks are forked, served after.

    Attributes:
        rendezvous: for the ranks, who may connect before it is served.
    """

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._store: Any = None
        self._socket = socket.create_server((HOST, 0), backlog=max(128, world_size))
        self.rendezvous = AgentRendezvous(self._socket.getsockname()[1])

    def descriptors(self) -> tuple[int, ...]:
        """What a forked rank has to close."""
        return (self._socket.fileno(),)

    def serve(self) -> None:
        """Answer, from a thread of torch's: all ranks must have been forked by then."""
        from torch._C._distributed_c10d import TCPStore

        port, fd = self.rendezvous.port, self._socket.detach()
        self._store = TCPStore(
            HOST, port, self._world_size, True, wait_for_workers=False, master_listen_fd=fd
        )

    def close(self) -> None:
        """Listen no more."""
        self._store = None
        self._socket.close()


@contextmanager
def agent(world: WorldSpec) -> Iterator[Agent]:
    """The store of one world, gone when the block ends."""
    held = Agent(world.world_size)
    try:
        yield held
    finally:
        held.close()


def variables(rank: int, world_size: int, local_rank: int, port: int) -> dict[str, str]:
    """What torchrun tells a rank of a world on one machine, by the variables' names."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "ROLE_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "ROLE_WORLD_SIZE": str(world_size),
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        **_where(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def _where(port: int) -> dict[str, str]:
    """The variables that lead to the store."""
    return {
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _lead_to(port: int) -> None:
    """Let ``init_process_group`` find our store, whatever address the program has written itself.

    Many programs set MASTER_ADDR and MASTER_PORT in their own code, where nobody listens here. The
    function is torch's own, from 2.8 to 2.15; 2.15 asks the variables too whether an agent has the
    store. A torch without the function goes by them alone.
    """
    # torch.distributed.rendezvous, as an attribute, is a function of that name.
    rendezvous = import_module("torch.distributed.rendezvous")
    create = getattr(rendezvous, "_create_c10d_store", None)
    if create is None:
        return

    def find(_host: str, _port: int, *rest: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's own
        os.environ.update(_where(port))
        return create(HOST, port, *rest, **named)

    vars(rendezvous)["_create_c10d_store"] = find
