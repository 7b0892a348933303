"""``distdemo postmortem``: judge what the ranks of a job left behind, or where they are now."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from distdemo.cli.contract import Result, command
from distdemo.cli.options import Calls, Excluded, count
from distdemo.cli.session import Session
from distdemo.errors import UsageError
from distdemo.postmortem.records import LiveNode


@dataclass(frozen=True, kw_only=True)
class PostmortemOptions:
    """Options of ``distdemo postmortem``."""

    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FOLDER", help="Folder or files that the ranks wrote.", show_default=False
        ),
    ] = None
    live: Annotated[
        bool,
        typer.Option("--live", help="Look at the ranks that run on this node now, with py-spy."),
    ] = False
    job: Annotated[
        int | None,
        count("With --live: the job's MASTER_PORT, or a process of it.", metavar="NUMBER"),
    ] = None
    excluded: Excluded = None
    calls: Calls = False


@command(
    record="distdemo.postmortem.records:Postmortem",
    folder=True,
    epilog="Try: TORCH_FR_DUMP_TEMP_FILE=dumps/rank_ torchrun ... train.py; "
    "distdemo postmortem dumps; distdemo postmortem --live",
)
def postmortem(session: Session, options: PostmortemOptions) -> Result:
    """Find the rank and line at fault after a hang or a crash.

    Reads dumps of torch's flight recorder, logs of ranks and of torchrun, and recordings of
    distdemo.sanitizer.install(). The job itself needs no distdemo. --live looks at a job that hangs
    now, and stops nothing. On several nodes, run it on each with -o FOLDER, which writes a file per
    node; then name the folder without --live.
    """
    from distdemo.postmortem.files import examine
    from distdemo.postmortem.live import look
    from distdemo.postmortem.view import postmortem_view

    folder = session.folder
    if not (options.files or options.live):
        what = "postmortem requires a folder or --live."
        raise UsageError(what, "It judges files of ranks.", "Try: distdemo postmortem dumps.")
    if not options.live and (options.job or folder):
        what = f"{'--job' if options.job else '--output FOLDER'} requires --live."
        raise UsageError(what, "Files are of one job.", "Leave it out, or add --live.")
    node = look(options.job) if options.live else None
    report = examine(options.files or (), options.excluded or (), node)
    view = partial(postmortem_view, calls=options.calls)
    if node is None or folder is None:
        return Result(report, view)
    file = "--output", folder / f"live-{node.host}.json", partial(_content, node, folder)
    return Result(report, view, files=(file,))


def _content(node: LiveNode, folder: Path) -> str:
    """Return the content of the file of a node, whose folder exists then."""
    from distdemo.postmortem.live import node_text

    folder.mkdir(exist_ok=True)  # several nodes may create it
    return node_text(node)
