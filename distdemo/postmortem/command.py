"""``distdemo postmortem``: judge what the ranks of a job left behind, or where they are now."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from distdemo.cli.contract import FileContent, Result, command
from distdemo.cli.options import Calls, Excluded, count
from distdemo.cli.session import Session
from distdemo.errors import UsageError
from distdemo.postmortem.records import LiveNode

ASK = "Ranks of this job can be asked for their calls: add --ask."


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
    ask: Annotated[
        bool,
        typer.Option(
            "--ask", help="With --live: ask debug servers, NCCL's pipes for dumps, and NCCL RAS."
        ),
    ] = False
    excluded: Excluded = None
    calls: Calls = False


@command(
    record="distdemo.postmortem.records:Postmortem",
    folder=True,
    epilog="Try: TORCH_FR_DUMP_TEMP_FILE=dumps/rank_ torchrun ... train.py; "
    "distdemo postmortem dumps; distdemo postmortem --live",
)
def postmortem(session: Session, options: PostmortemOptions) -> Result:
    """Find the rank and line at fault in a hang (--live) or crash.

    Reads dumps of torch's flight recorder, logs of ranks and of torchrun, and recordings of
    distdemo.sanitizer.install(). The job itself needs no distdemo. --live looks at a job that hangs
    now, and stops nothing; with --ask it also gets the calls of ranks that can be asked. On several
    nodes, run it on each with -o FOLDER, which writes files of each node; then name the folder
    without --live.
    """
    from distdemo.postmortem.files import examine
    from distdemo.postmortem.view import postmortem_view

    folder = session.folder
    _check(options, folder)
    view = partial(postmortem_view, calls=options.calls)
    if not options.live:
        return Result(examine(options.files or (), options.excluded or ()), view)
    from distdemo.postmortem.ask import Answers, ask, ask_again, ask_stacks, can_answer
    from distdemo.postmortem.live import look
    from distdemo.postmortem.processes import choose_job

    job = choose_job(options.job)
    answers = ask(job, socket.gethostname()) if options.ask else Answers()
    node = look(job, needs_stacks=not answers.files, notes=answers.notes)
    node = replace(node, called=ask_again(job, answers))
    if answers.files and (unread := [rank.rank for rank in node.ranks if rank.unread]):
        answers.files |= ask_stacks(job, unread)
    with TemporaryDirectory(prefix="distdemo-") as temporary:
        for name, content in answers.files.items():
            Path(temporary, name).write_bytes(content)
        files = [*(options.files or ()), *([temporary] if answers.files else [])]
        report = examine(files, options.excluded or (), node)
    notes = [ASK] if not options.ask and can_answer(job) else answers.notes
    report = replace(report, notes=(*notes, *report.notes))
    if folder is None:
        return Result(report, view)
    contents: dict[str, Callable[[], FileContent]] = {
        f"live-{node.host}.json": partial(_content, node, folder),
        **{name: partial(bytes, content) for name, content in answers.files.items()},
    }
    written = (("--output", folder / name, make) for name, make in contents.items())
    return Result(report, view, files=tuple(written))


def _check(options: PostmortemOptions, folder: Path | None) -> None:
    """Refuse options that don't go together.

    Raises:
        UsageError: There are such options.
    """
    if not (options.files or options.live):
        what = "postmortem requires a folder or --live."
        why = "It judges files of ranks, or looks at the ranks of a job that hangs now."
        raise UsageError(
            what, why, "Try: distdemo postmortem dumps, or distdemo postmortem --live."
        )
    given = {"--job": options.job, "--ask": options.ask, "--output FOLDER": folder}
    name = next((name for name, value in given.items() if value), "")
    if name and not options.live:
        raise UsageError(
            f"{name} requires --live.", "Files are of one job.", "Leave it out, or add --live."
        )
    if options.ask and options.files:
        what = f"{options.files[0]} and --ask can't be combined."
        raise UsageError(what, "What the ranks answer is newer.", "Leave out one of them.")


def _content(node: LiveNode, folder: Path) -> str:
    """Return the content of the file of a node, whose folder exists then."""
    from distdemo.postmortem.live import node_text

    folder.mkdir(exist_ok=True)  # several nodes may create it
    return node_text(node)
