"""Messages between the program, the host and the ranks, and reports. No torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from distdemo.calls.records import CallCount, Finding, Gap, Row
from distdemo.encoding import derived
from distdemo.view.held import Held

UNEXPECTED = "This is marked with # fails, but it succeeded."
PROMPT, MORE = ">>> ", "... "
"""Prompts of the shell, for a statement and for its further lines."""
FAILS = re.compile(r"#\s*fails\b(?=\s*(:|$))", re.MULTILINE)
"""Comment that marks code that is meant to fail: ``# fails``, or ``# fails: rank 2 is missing``."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a world. As a request: start it in place of the present one."""

    world_size: int = 4
    backend: str = "gloo"


@dataclass(frozen=True, slots=True)
class Cell:
    """Run code on ranks.

    Attributes:
        file: File name of the code, ``<shell 4>``.
        ranks: Ranks that run it; None for all.
        pulls: True to return the value of the code, an expression, pickled.
    """

    file: str = ""
    source: str = ""
    ranks: frozenset[int] | None = None
    pulls: bool = False


Request = Settings | Cell


@dataclass(frozen=True, slots=True)
class Output:
    """Piece of a rank's output; arrives before the answer to the request."""

    rank: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Done:
    """Answer to a request.

    Attributes:
        ok: False if a rank raised, or the world could not go on.
        what: What went wrong, unless the payload says it.
        payload: Report on the cell, or None.
        pulled: Pickled values of all ranks, if the cell asks for them.
    """

    ok: bool = True
    what: str = ""
    payload: CellReport | None = None
    pulled: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class CopyVariables:
    """Have a rank copy its variables, for the world that replaces this one.

    Attributes:
        definitions: In the answer: file and source of the cells that define functions and classes.
        variables: In the answer: the variables, pickled together.
        lost: In the answer: names of the variables that can't be pickled.
    """

    definitions: tuple[tuple[str, str], ...] = ()
    variables: bytes = b""
    lost: str = ""


@dataclass(frozen=True, slots=True)
class CellResult:
    """Result of a cell on one rank.

    Attributes:
        value: Text of the last expression's value; empty if it is None.
        pulled: That value, pickled, if the cell asks for it.
        error: Exception with its traceback, from the cell's line inward, or empty.
        consequence: True if another rank's end caused the exception.
        held: Tensors before and after the collective that is the last expression, or None.
    """

    value: str = ""
    pulled: bytes = b""
    error: str = ""
    consequence: bool = False
    held: Held | None = None


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
        calls: Calls that the ranks made in it.
        values: Values of the last expression, unless it is None.
        held: What each rank held before and after the collective that is the last expression.
        errors: Exceptions with their tracebacks, without those that follow from another rank's end.
        what: Why the cell ended early, or empty.
        rows: Calls that ranks were waiting in.
        rule: Rule that was broken, or empty.
        variables: What the new ranks have of the old ones' variables; empty if the ranks stay.
        warnings: Warnings of the sanitizer that are new.
        stopped: Reason why calls are no longer compared, if that is new; or empty.
        gaps: What ranks couldn't look at, if that is new.
    """

    source: str
    ok: bool
    values: tuple[RanksText, ...] = ()
    held: tuple[Held, ...] = ()
    errors: tuple[RanksText, ...] = ()
    what: str = ""
    rows: tuple[Row, ...] = ()
    rule: str = ""
    variables: str = ""
    calls: tuple[CallCount, ...] = ()
    warnings: tuple[Finding, ...] = ()
    stopped: str = ""
    gaps: tuple[Gap, ...] = ()

    @derived
    def expected_to_fail(self) -> bool:
        """True if a comment ``# fails`` marks it as meant to fail."""
        return bool(FAILS.search(self.source))

    @property
    def is_as_expected(self) -> bool:
        """True if it succeeded, or failed as it is meant to."""
        return self.ok is not bool(self.expected_to_fail)


@dataclass(frozen=True, slots=True)
class ShellReport:
    """Report on a session of the shell.

    Attributes:
        refused: Commands that could not be carried out, such as mistyped ones.
    """

    world_size: int
    backend: str
    cells: tuple[CellReport, ...]
    refused: tuple[CellReport, ...] = ()

    @property
    def ok(self) -> bool:
        """True if every cell succeeded on every rank or failed as expected, and all commands."""
        return not self.refused and all(cell.is_as_expected for cell in self.cells)


def in_common(texts: Mapping[int, str]) -> tuple[RanksText, ...]:
    """Return the different texts, with the ranks that have them."""
    ranks_by_text: dict[str, list[int]] = {}
    for rank in sorted(texts):
        ranks_by_text.setdefault(texts[rank], []).append(rank)
    return tuple(RanksText(tuple(ranks), text) for text, ranks in ranks_by_text.items())
