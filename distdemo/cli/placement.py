"""Find the place of this process in a world that other processes start, too."""

from __future__ import annotations

import os

from distdemo.errors import UsageError
from distdemo.launcher.joined import engines
from distdemo.launcher.joined.interfaces import parse_address
from distdemo.launcher.joined.placement import Placement

PORT = 29500  # torch's own default


def find_placement(
    launcher: str, nnodes: int | None, node_rank: int | None, master: str | None
) -> Placement | None:
    """Return the place of this process in a joined world, or None if it starts its own world.

    Args:
        launcher: ``auto``, ``local`` or the name of an engine.
        nnodes: Number of nodes on which this command is typed, without an engine.
        node_rank: Number of this node.
        master: Address of node 0, with or without a port.

    Raises:
        UsageError: The options, or the engine's variables, contradict each other.
    """
    if (nnodes, node_rank, master) == (None, None, None):
        if launcher == "local":
            return None
        if launcher == "auto":
            return engines.detect(os.environ)
        return engines.named(launcher, os.environ)
    if nnodes is None or node_rank is None or master is None:
        raise UsageError(
            "--nnodes, --node-rank and --master are required together.",
            "Without an engine, each node needs its number and the address of node 0.",
            "Try --nnodes 2 --node-rank 0 --master 10.0.0.1:29500, and --node-rank 1 on the other.",
        )
    around = engines.detect(os.environ)
    started_by = launcher if launcher not in ("auto", "local") else ""
    if around is not None and around.engine != "environment":  # those may be left in a shell
        started_by = around.engine
    if started_by:
        raise UsageError(
            f"--nnodes can't be combined with {started_by}.",
            f"{started_by} itself decides which ranks are on which host.",
            "Leave out --nnodes, --node-rank and --master.",
        )
    if node_rank >= nnodes:
        raise UsageError(
            f"--node-rank {node_rank}: there is no such node.",
            f"With --nnodes {nnodes} they are numbered 0 to {nnodes - 1}.",
            f"Try --node-rank {nnodes - 1}.",
        )
    host, port = parse_address(master)
    if port == 0:
        raise UsageError(
            f"--master {master}: 0 is not a port.",
            "The other nodes must know the port that node 0 opens.",
            f"Try --master {host}:{PORT}.",
        )
    return Placement(
        engine="terminals",
        rank=0,
        world_size=0,  # the command will say
        master=host,
        port=port or PORT,
        why=f"--nnodes {nnodes} --node-rank {node_rank}",
        nnodes=nnodes,
        node_rank=node_rank,
    )
