"""Which ranks form the groups that an op runs in."""

from __future__ import annotations

from distdemo.cli.parse import Flags, rank_list, whole
from distdemo.errors import UsageError

Groups = tuple[tuple[int, ...], ...]


def named_ranks(text: str | None) -> int:
    """How many ranks a world needs at least for this ``--group``; 0 if nothing can be told."""
    numbers = [word for part in (text or "").split(",") for word in part.strip().split("-")]
    return max(
        (int(word) + 1 for word in numbers if word.isdecimal() and len(word) < 10), default=0
    )


def parse_groups(flags: Flags, world_size: int) -> Groups | None:
    """The groups that the flags ask for; None: the whole world is one.

    Raises:
        UsageError: a rank twice or outside the world, a group of one, groups of unequal size.
    """
    group, split = flags.get("group"), flags.get("split")
    if group is not None and split is not None:
        raise UsageError(
            "--group and --split don't go together.",
            "One names the ranks of a group, the other cuts the whole world in groups.",
            "Take one.",
        )
    if group is not None:
        return (_group(group, world_size),)
    return None if split is None else _split(split, world_size)


def _group(text: str, world_size: int) -> tuple[int, ...]:
    hint = "Try --group 0,1."
    ranks = rank_list("group", text, world_size)
    twice = next((rank for rank in ranks if ranks.count(rank) > 1), None)
    if twice is not None:
        raise UsageError(
            f"--group {text}: rank {twice} is in it twice.", "A rank is in a group once.", hint
        )
    if len(ranks) < 2:
        raise UsageError(
            f"--group {text}: that is a group of one rank.",
            "It would have nobody to talk to.",
            hint,
        )
    return tuple(sorted(ranks))  # torch numbers the ranks of a group in this order too


def _split(text: str, world_size: int) -> Groups:
    """``2``: two groups of neighbours; ``%2``: by the rank modulo 2; ``/2``: two ranks a group."""
    hint = "Try --split 2, with an even number of ranks."
    kind = text[:1] if text[:1] in ("%", "/") else ""
    count = whole("--split", text[len(kind) :], "It counts groups.", hint)
    if count < 1:
        raise UsageError(
            f"--split {text}: there is no such number of groups.", "One at least.", hint
        )
    groups = world_size // count if kind == "/" else count
    if groups < 1 or world_size % groups or (kind == "/" and world_size % count):
        raise UsageError(
            f"--split {text}: {world_size} ranks can't be cut like that.",
            "The groups are of equal size.",
            hint,
        )
    each = world_size // groups
    if each < 2:
        raise UsageError(
            f"--split {text}: that makes groups of one rank.",
            "They would have nobody to talk to.",
            "Try --split /2."
            if kind == "/"
            else f"Try --world-size {2 * groups}, or a smaller --split.",
        )
    if kind == "%":
        return tuple(tuple(range(group, world_size, groups)) for group in range(groups))
    return tuple(tuple(range(group * each, (group + 1) * each)) for group in range(groups))
