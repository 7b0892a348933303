"""Option types: parsers that turn text into a value, for values that Typer doesn't know.

A parser raises :class:`BadValue`; ``cli.main`` makes a three-line error of it.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import typer

from distdemo import dtypes, words
from distdemo.cli.files import why_unwritable
from distdemo.errors import UsageError

T = TypeVar("T")
MAX_SECONDS = 1e9
MAX_BYTES = 1 << 60
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])i?)?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
CLOSE = 0.7
"""Least similarity of a name and its suggestion, as `difflib` measures it."""


class BadValue(typer.BadParameter):
    """Value that an option can't take.

    Args:
        text: Value as typed.
        what: What is wrong with it: ``not a number of bytes.``
        why: What the option expects, as a sentence.
        example: Value to try.
        hint: What to try, if that isn't a value of this option.
    """

    def __init__(
        self, text: str, what: str, why: str = "", example: str = "", hint: str = ""
    ) -> None:
        super().__init__(f"{text}: {what}")
        self.text = text
        self.what = what
        self.why = why
        self.example = example
        self.hint = hint

    def usage_error(self, flag: str = "") -> UsageError:
        """Return the error in three lines.

        Args:
            flag: Name of the option, ``--timeout``; by default the one that was being parsed.
        """
        if self.param is not None:
            usual = str(self.param.metavar or self.param.opts[0])
            flag = next((name for name in self.param.opts if name.startswith("--")), usual)
        hint = self.hint or (f"Try {flag} {self.example}." if self.example else "")
        return UsageError(f"{flag} {self.text or repr('')}: {self.what}", self.why, hint)


def _parser(parse: Callable[[str], T]) -> Callable[[Any], T]:
    """Adapt a parser to Typer, which also passes defaults through it."""

    @functools.wraps(parse)
    def convert(value: Any) -> T:
        return parse(value.strip()) if isinstance(value, str) else value

    return convert


# --------------------------------------------------------------------------------------- numbers


class Sizes(tuple[int, ...]):
    """Numbers of bytes in the given order. Typer would read a plain tuple as several values."""

    __slots__ = ()


@_parser
def parse_bytes(text: str) -> int:
    """Parse a number of bytes: ``8``, ``64K``, ``1.5MiB``. K, M, G and T are powers of 1024."""
    match = _SIZE.fullmatch(text)
    size = float(match[1]) * 2 ** _POWERS[(match[2] or "").lower()] if match else math.nan
    if not (size <= MAX_BYTES and size == int(size)):
        why = "K, M, G and T are powers of 1024."
        raise BadValue(text, "not a number of bytes.", why, "64K")
    return int(size)


@_parser
def parse_sizes(text: str) -> Sizes:
    """Parse sizes of messages in bytes: ``1K,16M``. Each is at least 1."""
    sizes = Sizes(parse_bytes(part.strip()) for part in text.split(","))
    if min(sizes) < 1:
        raise BadValue(text, "there is no message of 0 bytes.", "A size is at least 1.", "1K,16M")
    return sizes


@_parser
def parse_seconds(text: str) -> float:
    """Parse seconds, ``30`` or ``0.5s``; more than 0."""
    seconds = _number(text.removesuffix("s"))
    if not 0 < seconds <= MAX_SECONDS:
        raise BadValue(text, "not a positive number of seconds.", "A time limit is above 0.", "30")
    return seconds


@_parser
def parse_share(text: str) -> float:
    """Parse a share: ``5%`` or ``0.05``. A number of 1 or more without a sign is ambiguous."""
    number = _number(text.removesuffix("%").strip())
    share = number / 100 if text.endswith("%") else number
    if not 0 < share < 1:
        why = "Write a percentage below 100%, or a part of 1: 0.05 is 5%."
        example = f"{text}%" if 1 <= share < 100 else "5%"
        raise BadValue(text, "not a share between 0 and 1.", why, example)
    return share


def _number(text: str) -> float:
    """Parse a number. Return NaN, which is in no range, for anything else."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def whole(least: int = 1, most: int | None = None) -> Callable[[Any], int]:
    """Return a parser of whole numbers from ``least`` to ``most``; None is no limit."""
    limits = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
    why = f"It is a whole number {limits}."

    @_parser
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise BadValue(text, "not a whole number.", why, str(max(least, 2))) from None
        if number < least:
            raise BadValue(text, f"the minimum is {least}.", why, str(least))
        if most is not None and number > most:
            raise BadValue(text, f"the maximum is {most:,}.", why, str(most))
        return number

    return parse


def decimal(least: float, below: float, example: str) -> Callable[[Any], float]:
    """Return a parser of numbers that are at least ``least`` and below ``below``.

    Typer's ``min`` and ``max`` let NaN pass.
    """
    end = f", and below {below:g}" if math.isfinite(below) else ""

    @_parser
    def parse(text: str) -> float:
        number = _number(text)
        if not least <= number < below:
            why = f"It is a number of at least {least:g}{end}."
            raise BadValue(text, "out of range.", why, example)
        return number

    return parse


class Shape(tuple[int, ...]):
    """Lengths of a tensor's dimensions; () is a scalar."""

    __slots__ = ()


@_parser
def parse_shape(text: str) -> Shape:
    """Parse the shape of a tensor: ``4``, ``2,3``, ``2x3``, or ``scalar``."""
    if text.lower() in ("scalar", "()"):
        return Shape()
    parts = text.lower().strip("()[]").removesuffix(",").replace("x", ",").split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        why = "Each dimension has a length of at least 1."
        raise BadValue(text, "not a shape.", why, "2,3")
    return Shape(int(part) for part in parts)


# -------------------------------------------------------------------------------- ranks and groups


class RankList(tuple[int, ...]):
    """Ranks such as ``0,5-7``, in the given order, duplicates included. Empty means all."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Split:
    """Split of a world into groups of equal size.

    Attributes:
        groups: Number of groups; 0 if ``size`` is given.
        size: Ranks per group; 0 if ``groups`` is given.
        strided: True for groups by rank modulo the number of groups instead of neighbours.
    """

    groups: int = 0
    size: int = 0
    strided: bool = False

    def __str__(self) -> str:
        return f"/{self.size}" if self.size else f"{'%' * self.strided}{self.groups}"


@_parser
def parse_ranks(text: str) -> RankList:
    """Parse ranks: ``0,5-7``, or ``all``."""
    if text == "all":
        return RankList()
    chosen: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise BadValue(text, "not a list of ranks.", "Ranks count from 0.", "0,5-7")
        first = int(match[1])
        last = int(match[2] or first)
        if last < first:
            why = "A range goes from the smaller rank to the larger."
            raise BadValue(text, f"{part.strip()} runs backwards.", why, f"{last}-{first}")
        chosen += range(first, last + 1)
    return RankList(chosen)


@_parser
def parse_split(text: str) -> Split:
    """Parse a split: ``2`` groups of neighbours, ``%2`` by rank modulo 2, ``/2`` of two ranks."""
    match = re.fullmatch(r"([%/]?)([1-9]\d{0,8})", text)
    if match is None:
        why = "It is a number of groups; /2 is groups of two ranks."
        raise BadValue(text, "not a way to split a world.", why, "2")
    count = int(match[2])
    return Split(size=count) if match[1] == "/" else Split(count, strided=match[1] == "%")


def make_groups(
    group: RankList | None, split: Split | None, world_size: int
) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of every group of ``--group`` or ``--split``; () without either option.

    Raises:
        UsageError: Both were given, a rank is repeated or doesn't exist, a group has one rank, or
            groups differ in size.
    """
    if group is not None and split is not None:
        raise UsageError(
            "--group and --split can't be combined.", "Both make groups.", "Use one of them."
        )
    if group is not None:
        ranks = sorted(group or range(world_size))  # torch sorts the ranks of a group, too
        if len(ranks) < 2 or len(set(ranks)) < len(ranks):
            raise UsageError(
                f"--group {','.join(map(str, ranks))}: not a group.",
                "A group has at least two ranks, each of them once.",
                "Try --group 0,1.",
            )
        for rank in ranks:
            check_rank("--group", rank, world_size)
        return (tuple(ranks),)
    if split is None:
        return ()
    groups = split.groups or max(1, world_size // split.size)
    size = world_size // groups
    if size < 2 or groups * size != world_size or split.size not in (0, size):
        raise UsageError(
            f"--split {split}: {world_size} ranks can't be split like that.",
            "The groups are of equal size, with at least two ranks each.",
            f"Try --split /2 --world-size {max(4, world_size + world_size % 2)}.",
        )
    if split.strided:
        return tuple(tuple(range(first, world_size, groups)) for first in range(groups))
    return tuple(tuple(range(first, first + size)) for first in range(0, world_size, size))


def make_pair(
    pattern: str, src: int | None, dst: int | None, size: int, of: str
) -> tuple[int | None, int | None]:
    """Return sender and receiver of a point-to-point pair; the defaults are ranks 0 and 1.

    Raises:
        UsageError: The pattern has no pair, a rank doesn't exist, or both are the same.
    """
    if pattern != "pair":
        if (src, dst) != (None, None):
            raise UsageError(
                f"--src and --dst can't be combined with --pattern {pattern}.",
                "Every rank sends to its neighbours.",
                "Leave them out, or use --pattern pair.",
            )
        return None, None
    sender = int(dst == 0) if src is None else check_rank("--src", src, size, of)
    receiver = int(src != 1) if dst is None else check_rank("--dst", dst, size, of)
    if sender == receiver:
        why = "A rank can't send to itself."
        hint = f"Try --dst {(sender + 1) % size}."
        raise UsageError(f"--src and --dst are both {sender}.", why, hint)
    return sender, receiver


def ranks_to_show(ranks: RankList | None, world_size: int) -> frozenset[int] | None:
    """Return the ranks of ``--ranks``: all if the list is empty, None if it was not given.

    Raises:
        UsageError: A rank doesn't exist in the world.
    """
    if ranks is None:
        return None
    for rank in ranks:
        check_rank("--ranks", rank, world_size)
    return frozenset(ranks or range(world_size))


def check_rank(flag: str, rank: int, world_size: int, of: str = "A world") -> int:
    """Return the rank if it exists.

    Args:
        flag: Option that named it.
        rank: Rank, counted from 0.
        world_size: Number of ranks.
        of: What has that size: ``A world``, ``A group``.

    Raises:
        UsageError: There is no such rank.
    """
    if not 0 <= rank < world_size:
        raise UsageError(
            f"{flag} {rank}: there is no such rank.",
            f"{of} of {world_size} has the ranks 0 to {world_size - 1}.",
            f"Try {flag} {world_size - 1}.",
        )
    return rank


# --------------------------------------------------------------------------------- names and files


def one_of(names: Iterable[str], aliases: Mapping[str, str] | None = None) -> Callable[[Any], str]:
    """Return a parser of one of these names, or of an alias, in upper or lower case."""
    choices = tuple(names)
    known = {name: name for name in choices} | dict(aliases or {})
    known |= {word: name for word, name in words.VALUES.items() if name in known}

    @_parser
    def parse(text: str) -> str:
        word = words.without_prefix(text)
        name = known.get(text.lower(), known.get(word))
        if name is None:
            near = [other for other in words.SUGGESTED.get(word, ()) if other in known]
            near = near or [known[other] for other in nearest(word, known)]
            why = f"Choices: {', '.join(choices)}."
            hint = "" if near else "Use one of them."
            raise BadValue(text, "there is no such choice.", why, "".join(near[:1]), hint)
        return name

    return parse


def offer(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return the shell completion for ``one_of``."""
    choices = tuple(names)
    return lambda incomplete: [name for name in choices if name.startswith(incomplete)]


parse_dtype = one_of(dtypes.DTYPES, dtypes.NAMES)


def unknown(
    kind: str,
    names: Iterable[str],
    given: str,
    prefix: str = "",
    aliases: Mapping[str, str] | None = None,
) -> UsageError:
    """Return the error for an unknown name, with the closest known names.

    Args:
        kind: What it names: ``command``.
        names: Known names.
        given: Name as typed.
        prefix: Words to write before a suggestion.
        aliases: Other names, with what to suggest for them.
    """
    known = {name: name for name in names}
    lead = f"{prefix} " if prefix else ""
    every = {**(aliases or {}), **known}
    near = words.SUGGESTED.get(given, ()) or nearest(given, known)
    near = near or [every[name] for name in nearest(given, every)]
    hint = did_you_mean(lead + name for name in near) or "Use one of them."
    return UsageError(f"There is no {kind} {given!r}.", f"Choices: {', '.join(known)}.", hint)


def did_you_mean(near: Iterable[str]) -> str:
    """Return the question for these suggestions, or an empty string if there are none."""
    text = " or ".join(near)
    return f"Did you mean {text}?" if text else ""


def nearest(given: str, names: Iterable[str]) -> list[str]:
    """Return the name that is closest to the given one, [] if none is close.

    One or two names are close, too, if one of them and the given one start alike.
    """
    wanted = words.letters(given)
    known: dict[str, str] = {}
    for name in names:  # ``links`` is close to ``bench links``
        known.setdefault(words.letters(name.rpartition(" ")[2]), name)
        known[words.letters(name)] = name
    started = [
        name
        for letters, name in known.items()
        if min(len(letters), len(wanted)) > 2
        and (letters.startswith(wanted) or wanted.startswith(letters))
    ]
    if 0 < len(started) <= 2 and wanted not in known:
        return started
    return [known[letters] for letters in difflib.get_close_matches(wanted, known, 1, CLOSE)]


def file_to_write(*endings: str) -> Callable[[Any], Path]:
    """Return a parser of files to write, which are checked before anything runs.

    Args:
        endings: Suffixes that choose the format, ``.json``; empty accepts any.
    """

    @_parser
    def parse(text: str) -> Path:
        path = Path(text)
        if text in ("", "-"):
            example = f"result{''.join(endings[:1])}"
            raise BadValue(text, "not a file.", "Standard output has the result.", example)
        if endings and path.suffix.lower() not in endings:
            stem = path.stem.lstrip(".") or "result"
            named = f".{text}" in endings
            why = f"The suffix chooses the format: {', '.join(endings)}."
            example = f"result.{text}" if named else f"{stem}{endings[0]}"
            raise BadValue(text, "unknown suffix.", why, example)
        if path.suffix.lower() == ".png" and find_spec("matplotlib") is None:
            why = "It draws pictures as PNG; .svg works without it."
            hint = "Try: pip install 'distdemo[plot]'."
            raise BadValue(text, "matplotlib is not installed.", why, hint=hint)
        why = why_unwritable(path)
        if why:
            raise BadValue(text, "it can't be written.", why, f"result{path.suffix}")
        return path

    return parse
