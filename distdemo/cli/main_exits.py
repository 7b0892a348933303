"""An end that needs no more words."""

from __future__ import annotations


class AlreadyTold(Exception):  # noqa: N818 - it reads as what happened, as typer.Exit does
    """The command was interrupted and has shown what it had; only the exit code is left.

    Args:
        code: the exit code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
