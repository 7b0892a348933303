"""Run a command: shared options, session, result and exit code."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distdemo.cli import signals
from distdemo.cli.contract import CommandInfo, Content, Error, Result
from distdemo.cli.files import write_result
from distdemo.cli.options import (
    OUTPUT,
    Launcher,
    Master,
    NodeRank,
    Nodes,
    Quiet,
    Traceback,
    choice,
)
from distdemo.cli.placement import find_placement
from distdemo.cli.session import Session
from distdemo.cli.types import file_to_write
from distdemo.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    DistdemoError,
    Terminated,
    UsageError,
)

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldReport


class CommandEnded(Exception):  # noqa: N818 - it reads as what happened, as typer.Exit does
    """The command has finished and its result was shown; ``code`` is the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def runnable(name: str, function: Callable[..., Result]) -> Callable[..., None]:
    """Return a function for Typer: the command with the shared options added.

    Args:
        name: Name of the command, ``bench links``.
        function: Function that is decorated with ``cli.contract.command``.
    """
    info: CommandInfo = function.info  # type: ignore[attr-defined]  # see ``command``
    own = dict(inspect.signature(function, eval_str=True).parameters)
    shared = _shared(info)

    def run(**values: Any) -> None:  # noqa: ANN401 - typer fills them in by their annotations
        given = {key: values.pop(key) for key in shared}
        session = Session(
            name, given["format"], given["quiet"], given["traceback"], output=given["output"]
        )
        if "session" in own:
            values["session"] = session
        code = EXIT_FAILED
        try:
            if info.joins:
                session.placement = find_placement(
                    given["launcher"], given["nnodes"], given["node_rank"], given["master"]
                )
            code = _conclude(session, function(**values))
        except typer.Exit as end:  # on a node without rank 0
            code = end.exit_code
            raise
        except DistdemoError as error:
            code = EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
            if session.refuse(error):
                raise
        except (KeyboardInterrupt, Terminated) as stop:
            code = signals.exit_code() or EXIT_INTERRUPTED
            _raise_interrupted(stop)
            raise
        except Exception as error:
            if not session.has_foreign_results or session.traceback:
                raise
            raise DistdemoError(
                "The result of this world can't be shown.",
                f"It contradicts itself: {type(error).__name__}: {error}.",
                "Check who else can reach the ports of this world. --traceback shows the error.",
            ) from error
        finally:
            session.end(code)
        raise CommandEnded(code)

    parameters = [each for key, each in own.items() if key != "session"] + list(shared.values())
    keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    run.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {each.name: each.annotation for each in keyword}
    run.__doc__ = function.__doc__
    return run


def _raise_interrupted(stop: BaseException) -> None:
    """Raise an error that says where the ranks were, if a signal ended a world.

    Raises:
        DistdemoError: A signal did. The exit code is still the signal's.
    """
    from distdemo.launcher.verdict import report_of

    report = report_of(stop)
    if report is not None and report.verdict is not None:
        hint = "All ranks are gone, nothing was left behind."
        raise DistdemoError(signals.what_stopped(stop), report.verdict.why, hint) from stop


def _shared(info: CommandInfo) -> dict[str, inspect.Parameter]:
    """Return the options of every command, and those of joined worlds."""
    formats, endings = info.formats, info.outputs
    listed = f"{', '.join(formats[:-1])} or {formats[-1]}."
    written = choice("FORMAT", formats, listed, rich_help_panel=OUTPUT)
    file = typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        parser=file_to_write(*endings),
        help=f"Write the result to a file: {', '.join(endings)}.",
        rich_help_panel=OUTPUT,
    )
    declared: dict[str, tuple[Any, Any]] = {
        "format": (Annotated[str, written], "table"),
        "output": (Annotated[Path | None, file], None),
        "quiet": (Quiet, False),
        "traceback": (Traceback, False),
    }
    if info.joins:
        declared |= {
            "launcher": (Launcher, "auto"),
            "nnodes": (Nodes, None),
            "node_rank": (NodeRank, None),
            "master": (Master, None),
        }
    return {
        name: inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
        )
        for name, (kind, default) in declared.items()
    }


# ---------------------------------------------------------------------------------- the result


def _conclude(session: Session, result: Result) -> int:
    """Show the result, write the files, and return the exit code.

    The result is shown first, so that a file that can't be written doesn't lose minutes of work.
    """
    world = result.world or getattr(result.record, "world", None)
    ok = result.record.ok if result.ok is None else result.ok
    view = import_module(result.view)

    def document() -> str:
        from distdemo.encoding import dumps, encode

        errors = list(result.errors)
        if world is not None and world.verdict is not None:
            fault = world.verdict
            errors.insert(
                0, Error(fault.what, fault.why, fault.hint, fault.ranks, fault.consequences)
            )
        content = encode(result.record)
        return dumps(envelope(session.command, content, ok=ok, errors=encode(errors))) + "\n"

    unwritten: list[DistdemoError] = []
    try:
        with suppress(BrokenPipeError):  # a closed pipe doesn't change the exit code
            _show(session, result, world, document, view)
            sys.stdout.flush()
    finally:  # if standard output can't be written, the files still can
        # Without a result the file stays: it may hold an earlier one. In a joined world only the
        # process of rank 0 writes.
        if session.is_first and (world is None or world.ok or result.partial or result.kept):
            unwritten = _write(session, result, document, view)
    if result.interrupted:
        return signals.exit_code() or EXIT_INTERRUPTED
    return EXIT_OK if ok and not unwritten else EXIT_FAILED


def envelope(command: str, content: dict[str, Any], *, ok: bool, errors: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Return a document: the head of every document, the content, and the errors."""
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
    if session.format != "table":
        json = session.format == "json"
        sys.stdout.write(document() if json else view.FILES[f".{session.format}"](result.record))
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
) -> list[DistdemoError]:
    """Write every file, even if another one failed. Show the errors and return them."""
    files = [(flag, path, make) for flag, path, make in result.files if path is not None]
    if result.plot is not None:
        kind = result.plot.suffix[1:].lower()
        files.append(("--plot", result.plot, lambda: view.plot(result.record, kind)))
    if session.output is not None:
        ending = session.output.suffix.lower()
        own = getattr(view, "FILES", {})

        def content() -> Content:
            if ending in own:
                return own[ending](result.record)  # type: ignore[no-any-return]  # text or bytes
            if ending == ".json":
                return document()
            from distdemo.view.console import as_text

            return as_text(lambda console: view.table(result.record, console, **result.shown))

        files.insert(0, ("--output", session.output, content))
    failed = []
    for flag, path, make in files:
        try:
            write_result(flag, path, make)
        except DistdemoError as error:
            from distdemo.view.failure import show_error

            show_error(error)
            failed.append(error)
    return failed
