"""From flags to frozen specs: the world, the view, names and numbers.

Everything that can be refused without torch is refused here, with a message of three lines.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from distdemo import backends
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.launcher.start_method import METHODS

Flags = Mapping[str, Any]
LONGEST = 1e9  # seconds of a timeout


@dataclass(frozen=True, slots=True)
class View:
    """How a result is shown.

    Attributes:
        format: ``table`` or ``json``.
        ranks: the ranks to show; None for the default choice.
        explain: draw the operation first.
        quiet: the verdict alone.
        traceback: show the traceback of the rank at fault.
    """

    format: str = "table"
    ranks: frozenset[int] | None = None
    explain: bool = False
    quiet: bool = False
    traceback: bool = False


def parse_world(flags: Flags, world_size: int) -> WorldSpec:
    """The world to start: backend, device, timeout and start method."""
    device = flags["device"]
    if device is not None:
        device = choose("device", device, ("cpu", "cuda"))
    name = choose("backend", flags["backend"], ("auto", *backends.REGISTRY))
    backend = backends.automatic(world_size, device) if name == "auto" else backends.REGISTRY[name]
    if device is not None and device not in backend.devices:
        raise UsageError(
            f"--device {device} and --backend {backend.name} don't go together.",
            f"{backend.name} takes tensors on {' and '.join(backend.devices)}.",
            "Leave out --device, or try --backend gloo.",
        )
    if backend.rank_per_gpu and not backends.gpus_in_sight():
        raise UsageError(
            f"--backend {backend.name} needs a GPU for every rank.",
            "This machine shows no GPU.",
            "Try --backend gloo, or leave out --backend.",
        )
    if device == "cuda" and not backends.gpus_in_sight():
        raise UsageError(
            "--device cuda needs a GPU.", "This machine shows none.", "Leave out --device."
        )
    return WorldSpec(
        world_size,
        backend.name,
        device or backend.default_device(),
        _world_timeout(flags["timeout"], world_size, flags["start_method"]),
        choose("start-method", flags["start_method"], METHODS),
        capture=True,
    )


def parse_view(flags: Flags, world_size: int) -> View:
    """How to show the result."""
    return View(
        format=choose("format", flags["format"], ("table", "json")),
        ranks=_ranks(flags.get("ranks"), world_size),
        explain=flags.get("explain", False),
        quiet=flags.get("quiet", False),
        traceback=flags.get("traceback", False),
    )


def parse_world_size(text: str | None, default: int, smallest: int = 1, why: str = "") -> int:
    """How many ranks."""
    if text is None:
        return default
    size = whole(
        "--world-size", text, "It counts the ranks.", f"Try --world-size {max(2, smallest)}."
    )
    if size < smallest:
        raise UsageError(
            f"--world-size {size} is too small: {smallest} at least.",
            why or "A world has at least one rank.",
            f"Try --world-size {max(2, smallest)}.",
        )
    return size


def choose(flag: str, given: str, known: Iterable[str]) -> str:
    """One of the known names, in any case; else an error that offers the nearest."""
    names = list(known)
    if given.lower() in names:
        return given.lower()
    raise unknown(flag.replace("-", " "), names, given, f"--{flag}")


def unknown(kind: str, names: list[str], given: str, prefix: str = "") -> UsageError:
    """The error for a name of this kind that isn't known, with the nearest ones that are."""
    same = [name for name in names if _letters(name) == _letters(given)]
    near = same or difflib.get_close_matches(given.lower(), names, n=2, cutoff=0.5)
    lead = f"{prefix} " if prefix else ""
    hint = f"Did you mean {' or '.join(lead + name for name in near)}?" if near else ""
    return UsageError(
        f"There is no {kind} {given!r}.",
        f"Known are: {', '.join(names)}.",
        hint or f"Try {lead}{names[0]}.",
    )


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def whole(flag: str, text: str, why: str, hint: str) -> int:
    """A whole number, or the error that says why it should be one."""
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{flag} {text}: that is no whole number.", why, hint) from None


def rank_number(flag: str, text: str, world_size: int, group: str | None = None) -> int:
    """A rank of this world, or of a group of it.

    Args:
        flag: whose value it is.
        text: the value.
        world_size: how many ranks there are to choose from.
        group: what the user called the group, ``1,3``; None: it is the whole world.
    """
    last = world_size - 1
    rank = whole(f"--{flag}", text, "It names a rank.", f"Try --{flag} 0.")
    if not 0 <= rank < world_size and group is not None:
        raise UsageError(
            f"--{flag} {rank}: the group has no such rank.",
            f"In a group of {world_size} the ranks count from 0 to {last}, whoever they are in "
            "the world.",
            f"Try --{flag} {last}.",
        )
    if not 0 <= rank < world_size:
        raise UsageError(
            f"--{flag} {rank}: there is no such rank.",
            f"A world of {world_size} has the ranks 0 to {last}.",
            f"Try --{flag} {last}, or --world-size {rank + 1}." if rank > 0 else f"Try --{flag} 0.",
        )
    return rank


def _world_timeout(text: str | None, world_size: int, start_method: str) -> float:
    if text is None:
        each = 2.0 if start_method == "spawn" else 0.3  # a spawned rank imports torch by itself
        return max(30.0, each * world_size)
    return parse_timeout(text)


def parse_timeout(text: str) -> float:
    """Seconds, more than 0 and not so many that no clock counts them."""
    return parse_seconds(
        text,
        LONGEST,
        UsageError(
            f"--timeout {text}: that is no positive number of seconds.",
            f"It is when the run is given up, {LONGEST:g} s at most.",
            "Try --timeout 30.",
        ),
    )


def parse_seconds(text: str, most: float, refusal: UsageError) -> float:
    """Seconds, ``30`` or ``30s``: more than 0 and at most so many; else the refusal is raised."""
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= most:
        raise refusal
    return seconds


def _ranks(text: str | None, world_size: int) -> frozenset[int] | None:
    """The ranks that ``0,5-7`` or ``all`` names."""
    if text is None:
        return None
    return frozenset(range(world_size) if text == "all" else rank_list("ranks", text, world_size))


def rank_list(flag: str, text: str, world_size: int) -> list[int]:
    """The ranks that ``0,5-7`` names, in that order, as often as it names them."""
    chosen: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        start = rank_number(flag, first, world_size)
        stop = rank_number(flag, last, world_size) if dash else start
        if stop < start:
            raise UsageError(
                f"--{flag} {text}: {start}-{stop} runs backwards.",
                "A range goes from the smaller rank to the larger.",
                f"Try --{flag} {stop}-{start}.",
            )
        chosen += range(start, stop + 1)
    return chosen
