"""Messages between the program, the host process and the ranks. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from distdemo.sanitizer.records import Row

START, RESTORE, COPY = -3, -2, -1
"""Numbers of the messages that belong to no request of the program."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a world.

    Attributes:
        sanitize: True to compare the ranks' calls.
    """

    world_size: int = 4
    backend: str = "gloo"
    sanitize: bool = True


@dataclass(frozen=True, slots=True)
class NewWorld:
    """Start a world, in place of the present one, without its variables."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class Cell:
    """Run code on ranks.

    Attributes:
        file: File name of the code, ``<shell 4>``.
        ranks: Ranks that run it; None for all.
    """

    file: str
    source: str
    ranks: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Push:
    """Set variables: pickled values by rank."""

    values: dict[int, bytes]


@dataclass(frozen=True, slots=True)
class Pull:
    """Return each rank's value of an expression, pickled."""

    expression: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Return the variables; sent by the host."""


@dataclass(frozen=True, slots=True)
class Names:
    """Return the names of rank 0's variables and the attributes of an expression."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Calls:
    """Return the calls of this world so far, and rank 0's last."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Interrupt the cell that is running."""


Request = NewWorld | Cell | Push | Pull | Names | Calls | Interrupt


@dataclass(frozen=True, slots=True)
class Output:
    """Piece of a rank's output."""

    rank: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CellError:
    """Exception of a cell on one rank.

    Attributes:
        text: ``ValueError: no``.
        trace: Traceback, from the cell's line inward.
        consequence: True if another rank's end caused it.
    """

    text: str
    trace: str = ""
    consequence: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """Answer to a request.

    Attributes:
        ok: False if a rank raised, or the world could not go on.
        values: Text of the last expression's value by rank, if it is not None.
        errors: Exception by rank.
        what: Why the cell ended early, or empty.
        rows: Calls that ranks were waiting in.
        rule: Rule that was broken, or empty.
        replaced: True if a new world has replaced the old one.
        lost: Names of the variables that it could not keep, by rank; None: all.
        payload: Answer to ``Pull``, ``Names`` and ``Calls``.
    """

    ok: bool = True
    values: dict[int, str] = field(default_factory=dict)
    errors: dict[int, CellError] = field(default_factory=dict)
    what: str = ""
    rows: tuple[Row, ...] = ()
    rule: str = ""
    replaced: bool = False
    lost: dict[int, tuple[str, ...] | None] = field(default_factory=dict)
    payload: Any = None


@dataclass(frozen=True, slots=True)
class RanksText:
    """A text that several ranks have in common."""

    ranks: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class CellReport:
    """Report on a cell.

    Attributes:
        source: Its code.
        ok: False if a rank raised, or the world could not go on.
        values: Values of the last expression.
        errors: Exceptions with their tracebacks.
        what: Why the cell ended early, or empty.
        rows: Calls that ranks were waiting in.
        rule: Rule that was broken, or empty.
        replaced: True if a new world has replaced the old one.
        lost: Names of the variables that it could not keep.
    """

    source: str
    ok: bool
    values: tuple[RanksText, ...] = ()
    errors: tuple[RanksText, ...] = ()
    what: str = ""
    rows: tuple[Row, ...] = ()
    rule: str = ""
    replaced: bool = False
    lost: tuple[RanksText, ...] = ()


@dataclass(frozen=True, slots=True)
class ShellReport:
    """Report on a session of the shell."""

    world_size: int
    backend: str
    cells: tuple[CellReport, ...]

    @property
    def ok(self) -> bool:
        """True if every cell succeeded on every rank."""
        return all(cell.ok for cell in self.cells)


def in_common(texts: Mapping[int, str]) -> tuple[RanksText, ...]:
    """Return each text once, with the ranks that have it."""
    found: dict[str, list[int]] = {}
    for rank in sorted(texts):
        found.setdefault(texts[rank], []).append(rank)
    return tuple(RanksText(tuple(ranks), text) for text, ranks in found.items())


def report(source: str, done: Done) -> CellReport:
    """Return the report on a cell. Errors that only follow from another rank's end are left out."""
    causes = {r: e for r, e in done.errors.items() if not e.consequence} or done.errors
    if done.rows:
        causes = {r: e for r, e in causes.items() if not e.consequence}
    shown = {rank: f"{error.trace}{error.text}" for rank, error in causes.items()}
    lost = {
        rank: "all variables" if names is None else ", ".join(names)
        for rank, names in done.lost.items()
    }
    return CellReport(
        source,
        done.ok,
        in_common(done.values),
        in_common(shown),
        done.what,
        done.rows,
        done.rule,
        done.replaced,
        in_common(lost),
    )
