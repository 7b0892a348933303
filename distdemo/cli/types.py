"""Option types: parsers that turn text into a value, for values that Typer doesn't know.

A parser raises :class:`BadValue`; ``cli.main`` makes a three-line error of it.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import typer

from distdemo import dtypes, words
from distdemo.cli.files import why_unwritable
from distdemo.errors import UsageError

T = TypeVar("T")
MAX_SECONDS = 1e9
MAX_BYTES = 1 << 60
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])i?)?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


class BadValue(typer.BadParameter):
    """Value that an option can't take.

    Args:
        text: Value as typed.
        what: What is wrong with it: ``not a number of bytes.``
        why: What the option expects, as a sentence; by default its help.
        example: Value to try.
    """

    def __init__(self, text: str, what: str, why: str = "", example: str = "") -> None:
        super().__init__(f"{text}: {what}")
        self.text = text
        self.what = what
        self.why = why
        self.example = example

    def usage_error(self) -> UsageError:
        """Return the error in three lines, with the name of the option that was being parsed."""
        flag = help_text = ""
        if self.param is not None:
            names = [name for name in self.param.opts if name.startswith("--")]
            flag = names[0] if names else str(self.param.metavar)
            help_text = str(getattr(self.param, "help", "")).replace("\\[", "[")
        hint = f"Try {flag} {self.example}." if self.example else "Use another value."
        what = f"{flag} {self.text or repr('')}: {self.what}"
        return UsageError(what, self.why or help_text, hint)


def _parser(parse: Callable[[str], T]) -> Callable[[Any], T]:
    """Adapt a parser to Typer, which also passes defaults through it."""

    @functools.wraps(parse)
    def convert(value: Any) -> T:
        return parse(value.strip()) if isinstance(value, str) else value

    return convert


# --------------------------------------------------------------------------------------- numbers


class Numbers(tuple[int, ...]):
    """Whole numbers of one option. Typer would read a plain tuple as several values."""

    __slots__ = ()


def numbers(what: str, example: str, least: int = 0) -> Callable[[Any], Numbers]:
    """Return a parser of whole numbers that are separated by commas.

    Args:
        what: What they are, in plural: ``lengths``.
        example: Value to try.
        least: Smallest number.
    """

    @_parser
    def parse(text: str) -> Numbers:
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isdecimal() and int(part) >= least for part in parts):
            raise BadValue(text, f"these are not {what} of at least {least}.", "", example)
        return Numbers(map(int, parts))

    return parse


@_parser
def parse_bytes(text: str) -> int:
    """Parse a number of bytes: ``8``, ``64K``, ``1.5MiB``. K, M, G and T are powers of 1024."""
    match = _SIZE.fullmatch(text)
    size = float(match[1]) * 2 ** _POWERS[(match[2] or "").lower()] if match else math.nan
    if not (size <= MAX_BYTES and size == int(size)):
        raise BadValue(text, "not a number of bytes.", "K, M, G and T are powers of 1024.", "64K")
    return int(size)


@_parser
def parse_sizes(text: str) -> Numbers:
    """Parse sizes of messages in bytes: ``1K,16M``. Each is at least 1."""
    sizes = Numbers(parse_bytes(part.strip()) for part in text.split(","))
    if min(sizes) < 1:
        raise BadValue(text, "there is no message of 0 bytes.", "", "1K,16M")
    return sizes


@_parser
def parse_shape(text: str) -> Numbers:
    """Parse the shape of a tensor: ``4``, ``2,3``, or ``scalar``, which is ()."""
    return Numbers() if text == "scalar" else numbers("lengths", "2,3", 1)(text)


@_parser
def parse_seconds(text: str) -> float:
    """Parse seconds, ``30`` or ``0.5s``; more than 0."""
    seconds = _number(text.removesuffix("s"))
    if not 0 < seconds <= MAX_SECONDS:
        raise BadValue(text, "not a positive number of seconds.", "", "30")
    return seconds


@_parser
def parse_share(text: str) -> float:
    """Parse a share: ``5%`` or ``0.05``. A number of 1 or more without a sign is ambiguous."""
    number = _number(text.removesuffix("%").strip())
    share = number / 100 if text.endswith("%") else number
    if not 0 < share < 1:
        raise BadValue(text, "not a share between 0 and 1.", "0.05 is 5%.", "5%")
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

    @_parser
    def parse(text: str) -> int:
        number = int(text) if text.isdecimal() else least - 1
        if number < least or number > (number if most is None else most):
            raise BadValue(text, f"not a whole number {limits}.", "", str(max(least, 2)))
        return number

    return parse


def decimal(least: float, below: float, example: str) -> Callable[[Any], float]:
    """Return a parser of numbers that are at least ``least`` and below ``below``.

    Typer's ``min`` and ``max`` let NaN pass.
    """

    @_parser
    def parse(text: str) -> float:
        number = _number(text)
        if not least <= number < below:
            what = f"not a number of at least {least:g} and below {below:g}."
            raise BadValue(text, what, "", example)
        return number

    return parse


# -------------------------------------------------------------------------------- ranks and groups


class Split(NamedTuple):
    """Split of a world into groups of equal size.

    Attributes:
        groups: Number of groups.
        strided: True for groups by rank modulo the number of groups instead of neighbours.
    """

    groups: int
    strided: bool

    def __str__(self) -> str:
        return f"{'%' * self.strided}{self.groups}"


@_parser
def parse_ranks(text: str) -> Numbers:
    """Parse ranks: ``0,5-7``, or ``all``."""
    ranks: list[int] = []
    for part in text.split(",") if text != "all" else ():
        match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise BadValue(text, "not a list of ranks.", "", "0,5-7")
        ranks += range(first, last + 1)
    return Numbers(ranks)


@_parser
def parse_split(text: str) -> Split:
    """Parse a split: ``2`` groups of neighbours, or ``%2`` by rank modulo 2."""
    match = re.fullmatch(r"(%?)([1-9]\d{0,8})", text)
    if match is None:
        raise BadValue(text, "not a way to split a world.", "", "2")
    return Split(int(match[2]), strided=bool(match[1]))


def make_groups(
    group: Numbers | None, split: Split | None, world_size: int
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
    size, rest = divmod(world_size, split.groups)
    if size < 2 or rest:
        raise UsageError(
            f"--split {split}: {world_size} ranks can't be split like that.",
            "The groups are of equal size, with at least two ranks each.",
            f"Try --world-size {2 * split.groups}.",
        )
    if split.strided:
        return tuple(tuple(range(first, world_size, split.groups)) for first in range(split.groups))
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
        raise UsageError(f"--src and --dst are both {sender}.", why, "Name two ranks.")
    return sender, receiver


def ranks_to_show(ranks: Numbers | None, world_size: int) -> frozenset[int] | None:
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
        name = known.get(text.lower()) or known.get(words.without_prefix(text))
        if name is None:
            near = difflib.get_close_matches(text.lower(), choices, 1)
            why = f"Choices: {', '.join(choices)}."
            raise BadValue(text, "there is no such choice.", why, (near or choices)[0])
        return name

    return parse


def offer(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return the shell completion for ``one_of``."""
    choices = tuple(names)
    return lambda incomplete: [name for name in choices if name.startswith(incomplete)]


parse_dtype = one_of(dtypes.DTYPES, dtypes.NAMES)


def unknown(kind: str, names: Iterable[str], given: str, hint: str = "") -> UsageError:
    """Return the error for an unknown name, with the closest known name.

    Args:
        kind: What it names: ``command``.
        names: Known names.
        given: Name as typed.
        hint: What to try, if that isn't a known name.
    """
    known = list(names)
    near = difflib.get_close_matches(given.lower(), known, 1, 0.7)  # help isn't shell
    hint = hint or (f"Did you mean {near[0]}?" if near else "Use one of them.")
    return UsageError(f"There is no {kind} {given!r}.", f"Choices: {', '.join(known)}.", hint)


def file_to_write(*endings: str) -> Callable[[Any], Path]:
    """Return a parser of files to write, which are checked before anything runs.

    Args:
        endings: Suffixes that choose the format, ``.json``; empty accepts any.
    """

    @_parser
    def parse(text: str) -> Path:
        path = Path(text)
        suffix = path.suffix.lower()
        example = f"result{(*endings, '')[0]}"
        if endings and suffix not in endings:
            why = f"The suffix chooses the format: {', '.join(endings)}."
            raise BadValue(text, "unknown suffix.", why, example)
        if suffix == ".png" and find_spec("matplotlib") is None:
            why = "Install it with: pip install 'distdemo[plot]'."
            raise BadValue(text, "matplotlib is not installed.", why, example)
        why = why_unwritable(path)
        if why:
            raise BadValue(text, "it can't be written.", why, example)
        return path

    return parse
