"""Which parameters of a user's function get the rank and the world size: told by their names."""

from __future__ import annotations

from collections.abc import Sequence

RANK_NAMES = ("rank",)
SIZE_NAMES = ("size", "world_size")


def leading(names: Sequence[str]) -> int:
    """How many of (rank, world size) a function with these parameters takes first: 0, 1 or 2."""
    if not (names[:1] and names[0] in RANK_NAMES):
        return 0
    return 2 if names[1:2] and names[1] in SIZE_NAMES else 1
