"""``distdemo postmortem``: judge what the ranks of a job left behind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from distdemo.cli.contract import Result, command
from distdemo.cli.options import Calls, Excluded


@dataclass(frozen=True, kw_only=True)
class PostmortemOptions:
    """Options of ``distdemo postmortem``."""

    files: Annotated[
        list[str],
        typer.Argument(metavar="FOLDER", help="Folder or files that the ranks wrote."),
    ]
    excluded: Excluded = None
    calls: Calls = False


@command(
    record="distdemo.postmortem.records:Postmortem",
    epilog="Try: TORCH_FR_DUMP_TEMP_FILE=dumps/rank_ torchrun ... train.py; "
    "distdemo postmortem dumps",
)
def postmortem(options: PostmortemOptions) -> Result:
    """Find the rank and line at fault after a hang or a crash.

    Reads dumps of torch's flight recorder, logs of ranks and of torchrun, and recordings of
    distdemo.sanitizer.install(). The job itself needs no distdemo.
    """
    from distdemo.postmortem.files import examine
    from distdemo.postmortem.view import postmortem_view

    report = examine(options.files, options.excluded or ())
    return Result(report, partial(postmortem_view, calls=options.calls))
