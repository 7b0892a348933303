"""The options of ``run`` that no other command has, or that mean something else there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from distdemo.cli.option_kinds import OUTPUT, RANKS, flag_option, text_option

PROGRAM = "Program"
IDLE = 60.0  # seconds


def _files(incomplete: str) -> list[str]:
    """What a shell may complete: Python files, and folders on the way to them."""
    folder = incomplete[: incomplete.rfind("/") + 1]
    try:
        found = sorted(Path(folder or ".").iterdir())
    except OSError:
        return []
    offered = [f"{folder}{each.name}/" for each in found if each.is_dir()]
    offered += [f"{folder}{each.name}" for each in found if each.suffix == ".py"]
    return [each for each in offered if each.startswith(incomplete)]


_WORDS = typer.Argument(
    metavar="FILE.py[:FUNCTION] [-- ARGS]",
    help="The program; after -- what is its own. FUNCTION is called on every rank with the group "
    "ready: by default run, then main. A file without either, or one that calls "
    "init_process_group itself, runs whole, as under torchrun.",
    show_default=False,
    autocompletion=_files,
)

RUN_OPTIONS: dict[str, tuple[Any, Any]] = {
    "words": (Annotated[list[str] | None, _WORDS], None),
    "module": text_option(
        "--module",
        "-m",
        panel=PROGRAM,
        metavar="MODULE[:FUNCTION]",
        text="A module instead of a file, as for python -m; or a function of it.",
    ),
    "script": flag_option(
        "--script",
        panel=PROGRAM,
        text="Run the file whole, whatever functions it has.",
    ),
    "run_size": text_option(
        "--world-size", "-n", panel=RANKS, metavar="N", text="How many ranks to start: 4."
    ),
    "run_timeout": text_option(
        "--timeout",
        panel=RANKS,
        metavar="SECONDS",
        text="When to give up, and say who is missing. By default never: a training may take "
        "hours.",
    ),
    "idle": text_option(
        "--idle",
        panel=RANKS,
        metavar="SECONDS",
        text="Give up when for so long no rank has written anything or used the processor; 0 or "
        f"never: don't. By default {IDLE:g}.",
    ),
    "run_launcher": text_option(
        "--launcher",
        panel=RANKS,
        metavar="NAME",
        text="auto refuses where torchrun, mpiexec or srun has started this process; local starts "
        "a world of its own all the same.",
        default="auto",
        offers=("auto", "local"),
        kind=str,
    ),
    "pdb": text_option(
        "--pdb",
        panel=PROGRAM,
        metavar="RANK",
        text="Give this rank the terminal: breakpoint() stops it, and so does an exception.",
    ),
    "tee": flag_option(
        "--tee", panel=OUTPUT, text="Show what ranks write as it comes, each line with its rank."
    ),
    "only_ranks": text_option(
        "--only",
        panel=OUTPUT,
        metavar="RANKS",
        text="Show what these ranks wrote and returned, all of it: 0 or 0,5-7.",
    ),
}
"""Annotation and default of each by its Python name."""
