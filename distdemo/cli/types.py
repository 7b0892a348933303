"""Option types: parsers that turn text into a value, for values that Typer doesn't know.

A parser raises :class:`BadValue`; ``cli.main`` makes a three-line error of it.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import typer

from distdemo import dtypes, ops, words
from distdemo.cli.commands import about, suggestion
from distdemo.cli.files import why_no_folder, why_unwritable
from distdemo.errors import UsageError
from distdemo.view.format import listing

T = TypeVar("T")
MAX_SECONDS = 1e9
MAX_RANKS = 1_000_000
MAX_NUMBER = 10**12
MAX_DIGITS = 20
MAX_BYTES = 1 << 60
ParserError: type[Exception] = typer.BadParameter.__mro__[2]
"""Base class of the parser's errors. Typer bundles click or imports it, depending on its release;
either way this is the third ancestor of `BadParameter`."""
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])i?)?b?", re.IGNORECASE)
_RANKS = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


class BadValue(typer.BadParameter):
    """Value that an option can't take.

    Args:
        text: Value as typed.
        what: What is wrong with it: ``not a number of bytes.``
        why: What the option expects, as a sentence; by default its help.
        example: Value to try.
        meant: Values that were probably meant.
        instead: What to try, as a sentence; by default the option with the example.
    """

    def __init__(
        self,
        text: str,
        what: str,
        why: str = "",
        example: str = "",
        meant: Sequence[str] = (),
        instead: str = "",
    ) -> None:
        super().__init__(f"{text}: {what}")
        self.text = text
        self.what = what
        self.why = why
        self.example = example
        self.meant = meant
        self.instead = instead

    def usage_error(self) -> UsageError:
        """Return the error in three lines, with the name of the option that was being parsed."""
        flag = help_text = ""
        if self.param is not None:
            names = [name for name in self.param.opts if name.startswith("--")]
            flag = names[0] if names else str(self.param.metavar)
            help_text = str(getattr(self.param, "help", "")).replace("\\[", "[")
        hint = f"Try {flag} {self.example}." if self.example else "Use another value."
        what = f"{flag} {self.text or repr('')}: {self.what}"
        if self.meant:
            return UsageError(what, hint=f"Did you mean {flag} {listing(self.meant, 'or')}?")
        return UsageError(what, self.why or help_text, self.instead or hint)


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
        parsed = Numbers(map(_whole, parts))
        if not all(least <= number <= MAX_BYTES for number in parsed):
            is_large = max(parsed) > MAX_BYTES
            limits = f"from {least} to {MAX_BYTES:,}" if is_large else f"of at least {least}"
            raise BadValue(text, f"these are not {what} {limits}.", "", example)
        return parsed

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
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MAX_SECONDS:
        raise BadValue(text, "not a positive number of seconds.", "", "30")
    return seconds


def _whole(text: str) -> int:
    """Parse a whole number. Return -1, or a large one for many digits: these are in no range."""
    if not text.isdecimal():
        return -1
    return int(text) if len(text) <= MAX_DIGITS else 10**MAX_DIGITS


def whole(least: int = 1, most: int = MAX_NUMBER) -> Callable[[Any], int]:
    """Return a parser of whole numbers from ``least`` to ``most``."""

    @_parser
    def parse(text: str) -> int:
        number = _whole(text)
        if not least <= number <= most:
            is_open = most in (MAX_RANKS, MAX_NUMBER) and number < least
            limits = f"of at least {least:,}" if is_open else f"from {least:,} to {most:,}"
            raise BadValue(text, f"not a whole number {limits}.", "", str(max(least, 2)))
        return number

    return parse


# -------------------------------------------------------------------------------- ranks and groups


@_parser
def parse_ranks(text: str) -> Numbers:
    """Parse ranks: ``0,5-7``, or ``all``."""
    ranks: list[int] = []
    for part in text.split(",") if text != "all" else ():
        match = _RANKS.fullmatch(part.strip())
        first, last = (_whole(match[1]), _whole(match[2] or match[1])) if match else (1, 0)
        if not 0 <= first <= last < MAX_RANKS:
            raise BadValue(text, "not a list of ranks.", "", "0,5-7")
        ranks += range(first, last + 1)
        if len(ranks) > MAX_RANKS:
            raise BadValue(text, f"more than {MAX_RANKS:,} ranks.", "", "0,5-7")
    return Numbers(ranks)


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

    @_parser
    def parse(text: str) -> str:
        name = known.get(text.lower()) or known.get(words.without_prefix(text))
        if name is None:
            why = f"Choices: {', '.join(choices)}."
            near = words.closest(text, choices)
            _, instead = about(text) or ("", "")
            raise BadValue(text, "there is no such choice.", why, choices[0], near, instead)
        return name

    return parse


def offer(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return the shell completion for ``one_of``."""
    choices = tuple(names)
    return lambda incomplete: [name for name in choices if name.startswith(incomplete)]


parse_dtype = one_of(dtypes.DTYPES, dtypes.NAMES)


def unknown(
    kind: str, names: Iterable[str], given: str, others: Iterable[str] = (), choices: str = ""
) -> UsageError:
    """Return the error for an unknown name.

    It has the known names that are meant: the table's own or the closest. If there are none, it has
    what the name means elsewhere, or else all known names.

    Args:
        kind: What it names: ``step``.
        names: Known names.
        given: Name as typed.
        others: More known names, which aren't listed.
        choices: Text that lists the names, by default in one line.
    """
    known = list(names)
    what = f"There is no {kind} {given!r}."
    hint = words.hint(given)
    meant = [name for name in known if hint is not None and hint.instead.endswith(f" {name}")]
    near = meant or words.closest(given, known, others)
    if near:
        why = hint.answer if hint is not None and meant else ""
        return UsageError(what, why, f"Did you mean {listing(near, 'or')}?")
    instead = about(given) or suggestion(given, is_close=True)
    if instead is not None:
        return UsageError(what, *instead)
    return UsageError(what, choices or f"Choices: {', '.join(known)}.", "Use one of them.")


def unknown_call(kind: str, names: Iterable[str], given: str, choices: str = "") -> UsageError:
    """Return the error for an unknown command or operation, with a hint if people know the name.

    Args:
        kind: What it names: ``command``.
        names: Known names. Names that torch and MPI give to operations are known as well.
        given: Name as typed.
        choices: Text that lists the names, by default in one line.
    """
    others = (*ops.NAMES, *words.meanings("command", "flag"))
    error = unknown(kind, names, given, others, choices)
    instead = suggestion(given)
    return error if instead is None else UsageError(error.what, *instead)


def file_to_write(*endings: str, folder: bool = False) -> Callable[[Any], Path]:
    """Return a parser of files to write, which are checked before anything runs.

    Args:
        endings: Suffixes that choose the format, ``.json``; empty accepts any.
        folder: True to accept a folder, whose name has no suffix; it need not exist.
    """

    @_parser
    def parse(text: str) -> Path:
        path = Path(text)
        suffix = path.suffix.lower()
        example = f"result{(*endings, '')[0]}"
        if folder and not suffix:
            why = why_no_folder(path)
            if why:
                raise BadValue(text, "it can't be written to.", why, example)
            return path
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
