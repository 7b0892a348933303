"""Rank 0 alone prints: the other processes that an engine started have nothing to say.

All of them run the same command, so all of them would find the same mistake in it.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence

from distdemo.errors import DistdemoError, UsageError
from distdemo.launchers.joined import engines

JOINING = ("hello", "check")
"""The commands beside those of ops that run as a part of a larger world."""


def speaks(arguments: Sequence[str]) -> bool:
    """Whether this process may print: it has rank 0, or no engine started it."""
    if _own_world(arguments):
        return True
    try:
        seat = engines.detect(os.environ)
    except UsageError:
        return True  # the command itself will say so
    return seat is None or seat.rank == 0


def murmur(error: DistdemoError) -> None:
    """On a host without rank 0, say in one line what is wrong: it may be wrong here alone."""
    seat = engines.detect(os.environ)
    if seat is not None and seat.local_rank == 0:
        line = f"distdemo: rank {seat.rank} on {socket.gethostname()}: {error.what} {error.why}\n"
        sys.stderr.write(line)


def fall_silent() -> None:
    """Let what the views print go nowhere. Standard error stays, for what is a fault of ours."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - to the very end


def _own_world(arguments: Sequence[str]) -> bool:
    """Whether ``--launcher local`` was asked for."""
    pairs = zip(arguments, [*arguments, ""][1:], strict=True)
    return any(
        word == "--launcher=local" or (word == "--launcher" and following == "local")
        for word, following in pairs
    )
