"""The program's main module, as new processes see it: they import it again, from its file.

A forked rank has all that its launcher has. Under forkserver and spawn, multiprocessing lets each
rank import the main module anew, which a prompt, a notebook or a program on stdin doesn't have.
"""

from __future__ import annotations

import sys
from multiprocessing import process
from pathlib import Path
from types import FunctionType

from distdemo.errors import UsageError


def is_lost(thing: object) -> bool:
    """Whether this function or class lives in a main module that a new process can't import."""
    if not isinstance(thing, (type, FunctionType)):
        return False
    return thing.__module__ == "__main__" and not _can_be_imported()


def check_main_file(why_new: str) -> None:
    """Refuse a main module that every new process would look for in vain.

    Args:
        why_new: why ranks are new processes here.

    Raises:
        UsageError: it has a file name, but no such file: a program that was read from stdin.
    """
    file = _file()
    if _name() is None and file is not None and not file.is_file():
        raise UsageError(
            "New processes can't import this program.",
            f"{why_new}, and each of them would import the main module: {file.name}.",
            "Put the program into a file, or launch with start_method='fork' before it computes "
            "or starts threads.",
        )


def _can_be_imported() -> bool:
    """Whether multiprocessing finds it, by the rules of its ``spawn.get_preparation_data``."""
    name = _name()
    if name is not None:  # started with -m; the __main__ of a package or an archive is left out
        return name.rpartition(".")[2] != "__main__"
    file = _file()
    return file is not None and file.is_file()


def _name() -> str | None:
    return getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None)


def _file() -> Path | None:
    file = getattr(sys.modules["__main__"], "__file__", None)
    start = getattr(process, "ORIGINAL_DIR", None) or ""  # the program may have gone elsewhere
    return None if file is None else Path(start, file)
