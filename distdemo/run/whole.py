"""A whole script or module, as ``python FILE`` or ``python -m MODULE`` runs it."""

from __future__ import annotations

import builtins
import os
import runpy
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distdemo.run.records import Program


def run_whole(program: Program) -> None:
    """Run it as the main module.

    Raises:
        BaseException: whatever it raises; SystemExit too.
    """
    if program.module:
        runpy.run_module(program.module, run_name="__main__", alter_sys=True)
    elif os.path.isfile(program.file) and not _is_archive(program.file):  # noqa: PTH113 - as it was typed
        _run_file(program.file)
    else:
        runpy.run_path(program.file, run_name="__main__")


def _run_file(file: str) -> None:
    """``runpy.run_path`` leaves another ``__file__`` and takes the module away at its end."""
    path = os.path.abspath(file)  # noqa: PTH100 - as Python does, which follows no links here
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = main
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102 - the user's own program, which is what was asked for


def _is_archive(file: str) -> bool:
    """Whether Python would run the ``__main__`` in it: a zip."""
    import zipfile

    return zipfile.is_zipfile(file)
