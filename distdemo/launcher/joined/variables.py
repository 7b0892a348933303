"""Environment variables that say which rank this is, read once and held to what they can mean."""

from __future__ import annotations

import re
from collections.abc import Mapping

from distdemo.errors import UsageError

ALONE = "Unset it, or give --launcher local to start a world on this machine alone."
_MOST = 2**31 - 1  # ranks and ports are C ints to every engine


def is_set(environ: Mapping[str, str], name: str) -> bool:
    """Whether the variable holds something; an empty one says nothing."""
    return bool(environ.get(name, "").strip())


def first_set(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The first of these names that is set; empty if none is."""
    return next((name for name in names if is_set(environ, name)), "")


def number(environ: Mapping[str, str], name: str, least: int = 0, most: int = _MOST) -> int:
    """The whole number that this variable holds.

    Raises:
        UsageError: it is no such number, or not within ``least`` and ``most``.
    """
    text = environ.get(name, "").strip()
    value = int(text) if re.fullmatch(r"[0-9]{1,10}", text) else -1
    if not least <= value <= most:
        span = f"from {least} up" if most == _MOST else f"from {least} to {most}"
        raise UsageError(f"{name} is {shortened(text)}.", f"It is a whole number {span}.", ALONE)
    return value


def number_or(environ: Mapping[str, str], name: str, otherwise: int) -> int:
    """The number that this variable holds, or another one where it is not set.

    Raises:
        UsageError: it is set, but to no whole number.
    """
    return number(environ, name) if name and is_set(environ, name) else otherwise


def place(environ: Mapping[str, str], rank_name: str, size_name: str) -> tuple[int, int]:
    """The rank and the size of the world that these two variables hold.

    Raises:
        UsageError: one of them is missing or no number, or there is no such rank.
    """
    for name, other in ((rank_name, size_name), (size_name, rank_name)):
        if not is_set(environ, name):
            raise UsageError(
                f"{other} is set, but {name} is not.",
                "Together they say which rank of how many this process is; one alone says nothing.",
                f"Set {name} too. {ALONE}",
            )
    rank, size = number(environ, rank_name), number(environ, size_name, 1)
    if rank >= size:
        raise UsageError(
            f"{rank_name} is {rank}, but {size_name} is {size}.",
            f"The ranks of a world of {size} are numbered from 0 to {size - 1}.",
            f"Set both as the engine that starts the ranks means them. {ALONE}",
        )
    return rank, size


def master(environ: Mapping[str, str]) -> tuple[str, int]:
    """The host and port of MASTER_ADDR and MASTER_PORT; empty and 0 for one that is not set.

    Raises:
        UsageError: the port is no port.
    """
    host = environ.get("MASTER_ADDR", "").strip()
    port = number(environ, "MASTER_PORT", 1, 65535) if is_set(environ, "MASTER_PORT") else 0
    return host, port


def said(names: tuple[str, ...]) -> str:
    """The sentence that tells people which variables told: ``RANK and WORLD_SIZE are set``."""
    if len(names) == 1:
        return f"{names[0]} is set"
    return f"{', '.join(names[:-1])} and {names[-1]} are set"


def shortened(text: str, most: int = 60) -> str:
    """What a user wrote, in quotes, without its middle if it is long."""
    return repr(text) if len(text) <= most else f"{text[: most // 2]!r}…{text[-most // 4 :]!r}"
