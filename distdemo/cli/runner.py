"""What every command has in common: its shared options, its session, its result, its exit code."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distdemo.cli.contract import Error, Result, Traits
from distdemo.cli.files import write_result
from distdemo.cli.options import NODES, OUTPUT
from distdemo.cli.placement import ENGINES, find_placement
from distdemo.cli.session import Session
from distdemo.cli.signals import code_of_interruption
from distdemo.cli.types import file_to_write, offer, one_of, whole
from distdemo.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, DistdemoError, Terminated, UsageError

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldReport


class AlreadyTold(Exception):  # noqa: N818 - it reads as what happened, as typer.Exit does
    """The error was shown; only the exit code is left.

    Args:
        code: the exit code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def runnable(name: str, function: Callable[..., Result]) -> Callable[..., None]:
    """A command's function as typer takes it: with the shared options, and run to its exit code.

    Args:
        name: of the command, ``bench links``.
        function: marked with ``cli.contract.command``.
    """
    traits: Traits = function.traits  # type: ignore[attr-defined]  # see ``command``
    own = inspect.signature(function, eval_str=True).parameters
    shared = _shared(traits)

    def run(**values: Any) -> None:  # noqa: ANN401 - typer fills them in by their annotations
        given = {key: values.pop(key) for key in shared}
        session = Session(name, given["format"], given["quiet"], given["traceback"])
        session.output = given["output"]
        code = EXIT_FAILED
        try:
            if traits.joins:
                session.placement = find_placement(
                    given["launcher"], given["nnodes"], given["node_rank"], given["master"]
                )
            if "session" in own:
                values["session"] = session
            result = function(**values)
            code = _conclude(session, result)
            if result.interrupted:  # the result says so itself
                raise AlreadyTold(code)
        except typer.Exit as end:
            code = end.exit_code
            raise
        except UsageError as error:
            code = EXIT_USAGE
            if not session.refuse(error):
                raise AlreadyTold(code) from error
            raise
        except DistdemoError as error:
            if not session.refuse(error):
                raise AlreadyTold(code) from error
            raise
        except (KeyboardInterrupt, Terminated) as stop:
            code = code_of_interruption()
            _say_where_ranks_were(stop)
            raise
        finally:
            session.end(code)
        if result.interrupted:  # which has been shown
            raise AlreadyTold(code)
        raise typer.Exit(code)

    parameters = [each for key, each in own.items() if key != "session"] + list(shared.values())
    keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    run.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {each.name: each.annotation for each in keyword}
    run.__doc__ = function.__doc__
    return run


def _say_where_ranks_were(stop: BaseException) -> None:
    """Make of a signal that ended a world the error that says so.

    Raises:
        DistdemoError: if it did; the exit code is the signal's, as it has come.
    """
    from distdemo.launcher.verdict import report_of

    report = report_of(stop)
    if report is not None and report.verdict is not None:
        what = "Stopped by SIGTERM." if isinstance(stop, Terminated) else "Interrupted."
        hint = "All ranks are gone, nothing was left behind."
        raise DistdemoError(what, report.verdict.why, hint) from stop


def _shared(traits: Traits) -> dict[str, inspect.Parameter]:
    """The options that every command takes, and those of a world that others start too."""

    def declare(name: str, kind: Any, default: Any, *flags: str, **how: Any) -> None:  # noqa: ANN401 - typer's
        how = {"rich_help_panel": OUTPUT, **how}
        found[name] = inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind, typer.Option(*flags, **how)],
        )

    found: dict[str, inspect.Parameter] = {}
    formats, endings = traits.formats, traits.outputs
    declare(
        "format",
        str,
        "table",
        "--format",
        metavar="FORMAT",
        parser=one_of(formats),
        autocompletion=offer(formats),
        help=f"{', '.join(formats[:-1])} or {formats[-1]}.",
    )
    declare(
        "output",
        Path | None,
        None,
        "--output",
        "-o",
        metavar="FILE",
        parser=file_to_write(*endings),
        help=f"Write the result to a file: {', '.join(endings)}.",
    )
    declare("quiet", bool, False, "--quiet", "-q", help="Print the verdict alone.")  # noqa: FBT003 - its default
    declare("traceback", bool, False, "--traceback", help="Show the traceback of an error.")  # noqa: FBT003 - its default
    if traits.joins:
        declare(
            "launcher",
            str,
            "auto",
            "--launcher",
            metavar="NAME",
            parser=one_of(("auto", "local", *ENGINES)),
            rich_help_panel=NODES,
            help=f"Who started this process: auto, local (nobody), {', '.join(ENGINES)}.",
        )
        declare(
            "nnodes",
            int | None,
            None,
            "--nnodes",
            metavar="N",
            parser=whole(1, "It is the number of nodes."),
            rich_help_panel=NODES,
            help="Number of nodes on which you type this command.",
        )
        declare(
            "node_rank",
            int | None,
            None,
            "--node-rank",
            metavar="NODE",
            parser=whole(0, "It is the number of this node."),
            rich_help_panel=NODES,
            help="Number of this node; node 0 shows the result.",
        )
        declare(
            "master",
            str | None,
            None,
            "--master",
            metavar="HOST[:PORT]",
            rich_help_panel=NODES,
            help="Address of node 0, which opens this port (29500) while it runs.",
        )
    return found


# ---------------------------------------------------------------------------------- the result


def _conclude(session: Session, result: Result) -> int:
    """Show the result, write the files, and say the exit code.

    It is shown first: whatever may happen to a file, minutes of work are not lost.
    """
    world = result.world or getattr(result.record, "world", None)
    ok = result.record.ok if result.ok is None else result.ok
    document = _document(session, result, world, ok=ok)
    view = import_module(result.view)
    try:
        with suppress(BrokenPipeError):  # a reader that left does not change the exit code
            _show(session, result, world, document, view)
            sys.stdout.flush()
    finally:  # where standard output is full, the files are all that is left
        unwritten = list(_write(session, result, document, view))
    if unwritten:
        from distdemo.view.console import messages, show
        from distdemo.view.failure import error_text

        for error in unwritten:
            show(messages(), error_text(error))
    if result.interrupted:
        return code_of_interruption()
    return EXIT_OK if ok and not unwritten else EXIT_FAILED


def _document(
    session: Session, result: Result, world: WorldReport | None, *, ok: bool
) -> Callable[[], str]:
    """What makes the JSON document."""

    def made() -> str:
        from distdemo.encoding import dumps, encode

        errors = list(result.errors)
        if world is not None and world.verdict is not None:
            verdict = world.verdict
            errors.insert(
                0,
                Error(verdict.what, verdict.why, verdict.hint, verdict.ranks, verdict.consequences),
            )
        return dumps(envelope(session.command, encode(result.record), ok=ok, errors=encode(errors)))

    return made


def envelope(command: str, content: dict[str, Any], *, ok: bool, errors: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """What every document begins with, its content, and its errors."""
    from distdemo.encoding import SCHEMA_VERSION

    head = {"schema_version": SCHEMA_VERSION, "command": command, "ok": ok}
    return {**head, **content, "ok": ok, "errors": errors}


def _show(
    session: Session,
    result: Result,
    world: WorldReport | None,
    document: Callable[[], str],
    view: Any,  # noqa: ANN401 - a module
) -> None:
    if session.format == "json":
        sys.stdout.write(document() + "\n")
        return
    if session.format != "table":
        content = view.FILES[f".{session.format}"](result.record)
        sys.stdout.write(content)
        return
    from distdemo.view.console import output, show
    from distdemo.view.failure import failure, users_traceback

    console = output()
    if world is not None and not world.ok:
        show(console, failure(world, console, traceback=session.traceback))
        trace = users_traceback(world, traceback=session.traceback)
        if trace:
            show(console, trace, whole=True)
        if not result.partial:
            return
        show(console, "")
    if session.quiet:
        show(console, view.summary(result.record, console))
    else:
        show(console, view.table(result.record, console, **result.shown))


def _write(
    session: Session,
    result: Result,
    document: Callable[[], str],
    view: Any,  # noqa: ANN401 - a module
) -> Iterator[DistdemoError]:
    """Write; what goes wrong with one file keeps no other from being written.

    Nothing is written where there is no result: the file may hold an earlier one. Of the
    processes of a joined world only rank 0's writes.
    """
    world = result.world or getattr(result.record, "world", None)
    if not session.is_first or (world is not None and not world.ok and not result.partial):
        return
    files = list(result.files)
    output = session.output
    if output is not None:
        made = {
            ".json": lambda: document() + "\n",
            ".txt": lambda: _as_text(result, view),
            **{
                ending: lambda make=make: make(result.record)  # type: ignore[misc]  # mypy infers no default
                for ending, make in getattr(view, "FILES", {}).items()
            },
        }
        files.insert(0, ("--output", output, made[output.suffix.lower()]))
    for flag, path, make in files:
        if path is None:
            continue
        try:
            write_result(flag, path, make)
        except DistdemoError as error:
            yield error


def _as_text(result: Result, view: Any) -> str:  # noqa: ANN401 - a module
    from distdemo.view.console import as_text

    return as_text(lambda console: view.table(result.record, console, **result.shown))
