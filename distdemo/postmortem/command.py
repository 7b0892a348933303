"""``distdemo postmortem``: judge what the ranks of a job left behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import typer

from distdemo.cli.contract import Result, command
from distdemo.cli.options import Calls, Strict
from distdemo.cli.options import Timeline as TimelineFile


@dataclass(frozen=True, kw_only=True)
class PostmortemOptions:
    """Options of ``distdemo postmortem``."""

    files: Annotated[
        list[str],
        typer.Argument(metavar="FOLDER", help="Folder, files or a glob that the ranks wrote."),
    ]
    calls: Calls = False
    record: TimelineFile = None
    strict: Strict = False


@command(
    record="distdemo.postmortem.records:Postmortem",
    epilog="Try: TORCH_FR_DUMP_TEMP_FILE=dumps/rank_ torchrun ... train.py; "
    "distdemo postmortem dumps",
)
def postmortem(options: PostmortemOptions) -> Result:
    """Name the rank and line at fault, from what a hung or crashed job left behind.

    Reads dumps of torch's flight recorder, logs of ranks, output of ncclras and py-spy dump, and
    recordings of distdemo.sanitizer.install(). The job itself needs no distdemo.
    """
    from distdemo.calls.timeline import Timeline
    from distdemo.postmortem.files import read
    from distdemo.postmortem.view import postmortem_view

    drawn = None if options.record is None else Timeline(options.record)
    report = replace(read(options.files, drawn), strict=options.strict)
    files = () if drawn is None else drawn.files
    return Result(report, partial(postmortem_view, calls=options.calls), files=files)
