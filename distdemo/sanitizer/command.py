"""``distdemo sanitize``: compare recorded calls."""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from distdemo.cli.contract import Result, command
from distdemo.cli.options import Calls, Strict, Timeline
from distdemo.cli.session import Session
from distdemo.errors import UsageError


@command(
    record="distdemo.sanitizer.records:Recording",
    outputs=(".json",),
    epilog="Try: DISTDEMO_RECORD=notes torchrun --nproc-per-node 4 train.py; "
    "distdemo sanitize notes",
)
def sanitize(
    session: Session,  # noqa: ARG001 - every command takes it
    *,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder that the ranks wrote to.")
    ],
    calls: Calls = False,
    record: Timeline = None,
    strict: Strict = False,
) -> Result:
    """Compare what ranks have recorded, and name the rank and line at fault.

    A program records its calls if it calls distdemo.sanitizer.install() and DISTDEMO_RECORD names
    a folder. The recording of a killed job is complete up to its last call.
    """
    from distdemo.sanitizer import timeline
    from distdemo.sanitizer.recording import judged

    if not folder.is_dir():
        raise UsageError(
            f"{folder} isn't a folder.",
            "Ranks write their notes to the folder that DISTDEMO_RECORD names.",
            "Run distdemo sanitize with that folder.",
        )
    with nullcontext() if record is None else closing(timeline.Timeline(record)) as drawn:
        report = replace(judged(folder, drawn), strict=strict)
    unwritten = () if drawn is None else drawn.unwritten
    return Result(report, "distdemo.sanitizer.view", shown={"calls": calls}, files=unwritten)
