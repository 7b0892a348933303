"""Whether this process is one rank of a world that others start too, and which."""

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
    """The place of this process in a world that others start too; None: it starts its own.

    Args:
        launcher: ``auto``, ``local`` or the name of an engine.
        nnodes: how many nodes type this command, without an engine.
        node_rank: which of them this is.
        master: the address of node 0, with or without a port.

    Raises:
        UsageError: these, or the engine's variables, contradict each other.
    """
    if (nnodes, node_rank, master) == (None, None, None):
        if launcher == "local":
            return None
        if launcher == "auto":
            return engines.detect(os.environ)
        return engines.named(launcher, os.environ)
    if nnodes is None or node_rank is None or master is None:
        raise UsageError(
            "--nnodes, --node-rank and --master belong together.",
            "Without an engine, each node is told which one it is, and where node 0 is.",
            "Try --nnodes 2 --node-rank 0 --master 10.0.0.1:29500, and --node-rank 1 on the other.",
        )
    around = engines.detect(os.environ)
    started_by = launcher if launcher not in ("auto", "local") else ""
    if around is not None and around.engine != "environment":  # those may be left in a shell
        started_by = around.engine
    if started_by:
        raise UsageError(
            f"--nnodes and {started_by} don't go together.",
            f"With {started_by} it is the engine that says which ranks are where.",
            "Leave out --nnodes, --node-rank and --master.",
        )
    if node_rank >= nnodes:
        raise UsageError(
            f"--node-rank {node_rank}: there is no such node.",
            f"With --nnodes {nnodes} they count from 0 to {nnodes - 1}.",
            f"Try --node-rank {nnodes - 1}.",
        )
    host, port = parse_address(master)
    if port == 0:
        raise UsageError(
            f"--master {master}: 0 is not a port.",
            "The other nodes have to know the port that node 0 opens.",
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
