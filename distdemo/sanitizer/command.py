"""``distdemo sanitize``: compare recorded calls."""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from distdemo.cli.contract import Result, command
from distdemo.cli.options import Calls, Strict, Timeline
from distdemo.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class SanitizeOptions:
    """Options of ``distdemo sanitize``."""

    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder that the ranks wrote to.")
    ]
    calls: Calls = False
    record: Timeline = None
    strict: Strict = False


@command(
    record="distdemo.sanitizer.records:Recording",
    epilog="Try: DISTDEMO_RECORD=notes torchrun --nproc-per-node 4 train.py; "
    "distdemo sanitize notes",
)
def sanitize(options: SanitizeOptions) -> Result:
    """Compare what ranks have recorded, and name the rank and line at fault.

    A program records its calls if it calls distdemo.sanitizer.install() and DISTDEMO_RECORD names
    a folder. The recording of a killed job is complete up to its last call.
    """
    from distdemo.sanitizer import timeline
    from distdemo.sanitizer.recording import compare_recordings
    from distdemo.sanitizer.view import recording_view

    if not options.folder.is_dir():
        raise UsageError(
            f"{options.folder} isn't a folder.",
            "Ranks write their notes to the folder that DISTDEMO_RECORD names.",
            "Run distdemo sanitize with that folder.",
        )
    record = options.record
    with nullcontext() if record is None else closing(timeline.Timeline(record)) as drawn:
        report = replace(compare_recordings(options.folder, drawn), strict=options.strict)
    files = () if drawn is None else drawn.unwritten
    return Result(report, partial(recording_view, calls=options.calls), files=files)
