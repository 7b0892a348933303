"""Rank 0 alone prints: the other processes that an engine started have nothing to say.

All of them run the same command, so all of them would find the same mistake in it.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence

from distdemo.cli.parse_engine import TERMINALS
from distdemo.cli.words import own
from distdemo.errors import DistdemoError, UsageError
from distdemo.launcher.joined import engines
from distdemo.launcher.joined.seat import Seat

TERMINAL_FLAGS = tuple(f"--{name.replace('_', '-')}" for name in TERMINALS)
"""Options of a person in front of this very terminal."""
HOLD_BACK = 1.5  # seconds for rank 0 to find the same mistake and say so
JOINING = ("hello", "check", "train", "rpc", "bench", "bench links", "trace")
"""The commands beside those of ops that run as a part of a larger world."""


def speaks(arguments: Sequence[str]) -> bool:
    """Whether this process may print: it has rank 0, or no engine started it."""
    seat = _seat(arguments)
    return seat is None or seat.rank == 0


def murmur(error: DistdemoError, arguments: Sequence[str]) -> None:
    """On a host without rank 0, say in one line what is wrong: it may be wrong here alone.

    Returns after a moment: an engine ends all ranks when the first has left, and rank 0 has more
    to say.
    """
    seat = _seat(arguments)
    if seat is not None and seat.local_size and seat.local_rank == 0:
        line = f"distdemo: rank {seat.rank} on {socket.gethostname()}: {error.what} {error.why}\n"
        sys.stderr.write(line)
    time.sleep(HOLD_BACK)


def fall_silent() -> None:
    """Let what the views print go nowhere. Standard error stays, for what is a fault of ours."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - to the very end


def _seat(arguments: Sequence[str]) -> Seat | None:
    """The place that an engine gave this process, if the command line does not say otherwise.

    None also where the variables are wrong: the command itself will say so.
    """
    launcher = _launcher(arguments)
    if launcher == "local" or any(_names(word, TERMINAL_FLAGS) for word in own(arguments)):
        return None
    try:
        named = launcher in engines.ENGINES
        return engines.named(launcher, os.environ) if named else engines.detect(os.environ)
    except UsageError:
        return None


def _launcher(arguments: Sequence[str]) -> str:
    """What ``--launcher`` was given; empty: nothing."""
    words = own(arguments)
    pairs = zip(words, [*words, ""][1:], strict=True)
    given = [following for word, following in pairs if word == "--launcher"]
    given += [word.partition("=")[2] for word in words if word.startswith("--launcher=")]
    return given[-1].lower() if given else ""


def _names(word: str, options: Sequence[str]) -> bool:
    return word.partition("=")[0] in options
