"""Whether this process is one rank of a world that an engine started, and which."""

from __future__ import annotations

import os

from distdemo.cli.parse import Flags, choose, parse_world_size, whole
from distdemo.errors import UsageError
from distdemo.launcher.joined import engines
from distdemo.launcher.joined.interfaces import parse_address
from distdemo.launcher.joined.placement import Placement

PORT = 29500  # torch's own default
TERMINALS = ("nnodes", "node_rank", "master")


def parse_seat(flags: Flags) -> Placement | None:
    """The place of this process in a world that others started too; None: it starts its own.

    Raises:
        UsageError: the flags, or the engine's variables, contradict each other.
    """
    wanted = choose(
        "launcher", flags.get("launcher") or "auto", ("auto", "local", *engines.ENGINES)
    )
    if any(flags.get(name) is not None for name in TERMINALS):
        return _terminals(flags, wanted)
    if wanted == "local":
        return None
    return engines.detect(os.environ) if wanted == "auto" else engines.named(wanted, os.environ)


def size_of_world(
    seat: Placement | None, text: str | None, default: int, smallest: int = 1, why: str = ""
) -> int:
    """How many ranks: as asked for, or as many as the engine started.

    Raises:
        UsageError: these two contradict each other, or it is too small.
    """
    if seat is None:
        return parse_world_size(text, default, smallest, why)
    if seat.nnodes:
        return _size_over_nodes(
            seat, parse_world_size(text, max(default, seat.nnodes), smallest, why)
        )
    if text is not None and parse_world_size(text, default, smallest, why) != seat.world_size:
        raise UsageError(
            f"--world-size {text}, but this world has {seat.world_size} ranks.",
            f"This process is rank {seat.rank} of them: {seat.why}.",
            "Leave out --world-size, start as many ranks as you want, or add --launcher local.",
        )
    parse_world_size(str(seat.world_size), default, smallest, why)
    return seat.world_size


def placed(seat: Placement | None, world_size: int) -> Placement | None:
    """The seat, once the size of the world is known: which ranks a node starts depends on it."""
    if seat is None or not seat.nnodes:
        return seat
    return seat.sized(world_size)


def ranks_here(seat: Placement | None, world_size: int) -> int:
    """How many of the ranks this machine has to hold, as far as is known."""
    if seat is None:
        return world_size
    return seat.ranks_here


def _terminals(flags: Flags, launcher: str) -> Placement:
    """One of several nodes on which somebody types the same command."""
    given = {name: flags.get(name) for name in TERMINALS}
    lacking = [f"--{name.replace('_', '-')}" for name, text in given.items() if text is None]
    if lacking:
        raise UsageError(
            f"{' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} missing.",
            "Without an engine, each node is told which one it is, and where node 0 is.",
            "Try --nnodes 2 --node-rank 0 --master 10.0.0.1:29500, and --node-rank 1 on the other.",
        )
    if launcher not in ("auto", "local"):
        raise UsageError(
            f"--nnodes and --launcher {launcher} don't go together.",
            f"With {launcher} it is the engine that says which ranks are where.",
            "Leave out one of them.",
        )
    nodes = whole("--nnodes", str(given["nnodes"]), "It counts the nodes.", "Try --nnodes 2.")
    node = whole("--node-rank", str(given["node_rank"]), "It names a node.", "Try --node-rank 0.")
    if nodes < 1:
        raise UsageError(f"--nnodes {nodes}: one at least.", "It counts the nodes.", "Try 2.")
    if not 0 <= node < nodes:
        raise UsageError(
            f"--node-rank {node}: there is no such node.",
            f"With --nnodes {nodes} they count from 0 to {nodes - 1}.",
            f"Try --node-rank {nodes - 1}.",
        )
    _refuse_second_engine()
    host, port = parse_address(str(given["master"]))
    if port == 0:
        raise UsageError(
            f"--master {given['master']}: 0 is no port.",
            "The other nodes have to know at which port node 0 listens.",
            f"Try --master {host}:{PORT}.",
        )
    return Placement(
        engine="terminals",
        rank=0,
        world_size=0,
        node_rank=node,
        master=host,
        port=PORT if port is None else port,
        why=f"--nnodes {nodes} --node-rank {node}",
        nnodes=nodes,
    )


def check_input(seat: Placement | None, flags: Flags) -> None:
    """Refuse values from standard input where it is not this process's own."""
    if seat is not None and "-" in (flags.get("values") or ()):
        raise UsageError(
            "--values - can't be had in a world that others started too.",
            "Each process would read its own standard input, and most have none.",
            "Give the values themselves, or a file that every process can read.",
        )


def _refuse_second_engine() -> None:
    around = engines.detect(os.environ)
    if around is not None and around.engine != "environment":  # left in a shell, perhaps
        raise UsageError(
            f"--nnodes, but {around.engine} has started this process.",
            f"{around.why}: this is rank {around.rank} of {around.world_size} already.",
            "Leave out --nnodes, --node-rank and --master; or unset these variables.",
        )


def _size_over_nodes(seat: Placement, size: int) -> int:
    if size < seat.nnodes:
        raise UsageError(
            f"--world-size {size} is too small for {seat.nnodes} nodes.",
            "Every node starts one rank at least.",
            f"Try --world-size {seat.nnodes}.",
        )
    return size
