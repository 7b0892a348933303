"""The kinds of options that the tables are made of, and the panels that help shows them in.

All arrive as text and are parsed in ``cli.parse``, so that a mistake gets our own message
(what, why, what to try) and never a traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from distdemo import backends

RANKS = "Ranks"
DATA = "Data"
OPERATION = "Operation"
OUTPUT = "Output"
SCOPE = "Scope"


def among(names: Iterable[str] | Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A shell completion that offers those of the names that begin with what was typed.

    Args:
        names: or what gives them, where to know them takes imports that only a shell waits for.
    """
    known = names if callable(names) else tuple(names)

    def offered(incomplete: str) -> list[str]:
        every = known() if callable(known) else known
        return [name for name in every if name.startswith(incomplete)]

    return offered


def text_option(  # noqa: PLR0913 - an option is declared in one call
    *names: str,
    panel: str,
    metavar: str,
    text: str,
    default: str | None = None,
    offers: Iterable[str] | Callable[[], Iterable[str]] = (),
    kind: Any = str | None,  # noqa: ANN401 - a type or a union of types
) -> tuple[Any, Any]:
    """An option with a value: its annotation and default."""
    option = typer.Option(
        *names,
        metavar=metavar,
        help=text,
        rich_help_panel=panel,
        autocompletion=among(offers) if offers else None,
    )
    return Annotated[kind, option], default


def backend_option(*names: str, before: str = "", after: str = "") -> tuple[Any, Any]:
    """Which backend: its annotation and default.

    Args:
        names: of the option.
        before: what its help begins with.
        after: what it ends with.
    """
    known = ", ".join(backends.REGISTRY)
    auto = "auto (nccl where there is a GPU for every rank, else gloo)"
    return text_option(
        *names,
        panel=RANKS,
        metavar="NAME[,NAME]" if before else "NAME",
        text=f"{before}{auto}, {known}.{after}",
        default="auto",
        offers=("auto", *backends.REGISTRY),
        kind=str,
    )


def flag_option(*names: str, panel: str, text: str) -> tuple[Any, Any]:
    """An option without a value."""
    return Annotated[bool, typer.Option(*names, help=text, rich_help_panel=panel)], False
