"""Run a command: options and session, result, files, exit code."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from distdemo import signals
from distdemo.cli.contract import CommandInfo, Content, Error, Result
from distdemo.cli.files import write_result
from distdemo.cli.options import OUTPUT, NodeOptions, OutputOptions, choice, option
from distdemo.cli.session import Session, find_placement
from distdemo.cli.types import file_to_write
from distdemo.errors import (
    ALL_EXITED,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    DistdemoError,
    Terminated,
    UsageError,
)
from distdemo.view.format import listing

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldReport
    from distdemo.view.blocks import Block
    from distdemo.view.console import Signs


PICTURES = (".svg", ".png")  # suffixes of pictures for slides
WRITTEN = (".json", ".md", *PICTURES)  # of every result; an export needs a record of its command
UNDERSTOOD = "distdemo.understood"
"""Key in the context's ``meta``: the command as typed, and its meaning."""


# ---------------------------------------------------------------------------------- from options


def runnable(name: str, function: Callable[..., Result]) -> Callable[..., int | Result]:
    """Return a function for Typer: the command's options as parameters, and the shared ones.

    It returns the exit code, or, if the context has an object, the result; see `app.result_of`.

    Args:
        name: Name of the command, ``bench links``.
        function: Function that is decorated with ``cli.contract.command``.
    """
    info: CommandInfo = function.info  # type: ignore[attr-defined]  # see ``command``
    taken = get_type_hints(function)
    bases = [*[NodeOptions] * info.joins, OutputOptions, *filter(None, [taken.get("options")])]
    own: list[Any] = _output_options(info)
    record: Any = make_dataclass(
        "CommandOptions", own, bases=tuple(bases), kw_only=True, frozen=True
    )

    def run(ctx: typer.Context, **values: Any) -> int | Result:
        options = record(**values)
        output = {field.name: getattr(options, field.name) for field in fields(OutputOptions)}
        session = Session(name, **output, exports=info.exports)
        given = {"session": session, "options": options}
        call = partial(function, **{name: given[name] for name in given if name in taken})
        if ctx.obj is not None:
            return call()
        nodes = options if info.joins else None
        return _run(session, nodes, ctx.meta.get(UNDERSTOOD), call)

    annotations = {"ctx": typer.Context, **get_type_hints(record, include_extras=True)}
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    declared = [context, *inspect.signature(record).parameters.values()]
    typed = [option.replace(annotation=annotations[option.name]) for option in declared]
    run.__signature__ = inspect.Signature(typed)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = annotations
    return run


def _output_options(info: CommandInfo) -> list[tuple[str, Any, Any]]:
    """Return ``--format`` and ``--output`` of a command with these exports, as fields."""
    formats = ["table", "json", "markdown", *(suffix[1:] for suffix in info.exports)]
    suffixes = (*WRITTEN, *info.exports)
    format_option = choice("FORMAT", formats, f"{listing(formats, 'or')}.", rich_help_panel=OUTPUT)
    text = f"Write the result to a file: {', '.join(suffixes)}."
    text += " A folder gets a file of this node." * info.folder
    parser = file_to_write(*suffixes, folder=info.folder)
    to_file = option(parser, "FILE", text, "--output", "-o", rich_help_panel=OUTPUT)
    return [
        ("format", Annotated[str, format_option], "table"),
        ("output", Annotated[Path | None, to_file], None),
    ]


def _run(
    session: Session,
    nodes: NodeOptions | None,
    understood: tuple[str, str] | None,
    function: Callable[[], Result],
) -> int:
    """Run the command's function, show its result, and return the exit code."""
    code = EXIT_FAILED
    try:
        if nodes is not None:
            session.placement = find_placement(nodes)
        if understood is not None:
            session.understood(*understood)
        signals.before_exit(partial(_write_failure, session))
        signals.enter(signals.Stage.RUNNING)
        code = conclude(session, _result(session, function))
    except typer.Exit as end:  # on a node without rank 0
        code = end.exit_code
        raise
    except DistdemoError as error:
        code = EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
        session.refuse(error)
        raise
    except (KeyboardInterrupt, Terminated) as stop:
        signals.enter(signals.Stage.SHOWING)
        _write_failure(session, stop)
        code = signals.exit_code() or EXIT_INTERRUPTED
        raise _error(stop) from stop
    finally:
        session.end(code)
    return code


def _result(session: Session, function: Callable[[], Result]) -> Result:
    """Return the function's result, or after a signal its result so far.

    Raises:
        BaseException: Of the function, or of a signal. The files say it, unless it is a refusal.
    """
    try:
        return function()
    except typer.Exit:
        raise
    except (KeyboardInterrupt, Terminated) as stop:
        if session.so_far is None:
            raise
        signals.enter(signals.Stage.SHOWING)
        return replace(session.so_far(signals.what_stopped(stop)), interrupted=True)
    except Exception as error:
        if session.so_far is not None or not isinstance(error, UsageError):
            _write_failure(session, error)
        raise


def _write_failure(session: Session, error: BaseException) -> None:
    """Write the files of a command that has ended with an exception, if this process writes any."""
    from distdemo.view.failure import show_error

    shown = _error(error)
    cause = Error(shown.what, shown.why, shown.hint)
    if session.so_far is not None:
        result = session.so_far(shown.what)
        result = replace(result, ok=False, errors=(cause, *result.errors))
    else:
        result = Result(_NoResult(cause), _failure_view, errors=(cause,))
    if session.is_first:
        for unwritten in _Output(session, result, None).write():
            show_error(unwritten)


@dataclass(frozen=True, slots=True)
class _NoResult:
    """Record of a command that ended before it had a result; its document has only the error."""

    error: Error

    ok = False

    def document(self) -> dict[str, Any]:
        """Return no field: the error is one of the document's."""
        return {}


def _failure_view(record: _NoResult, _: Signs) -> Iterator[Block]:
    """Yield the error."""
    from distdemo.view.blocks import Paragraph, Summary

    error = record.error
    yield Paragraph("\n".join(filter(None, (error.why, error.hint))))
    yield Summary(error.what, ok=False)


def _error(error: BaseException) -> DistdemoError:
    """Return an exception as an error of a document; after a signal, with the ranks' phases."""
    if isinstance(error, DistdemoError):
        return error
    if not isinstance(error, KeyboardInterrupt | Terminated):
        return DistdemoError(" ".join(f"{type(error).__name__}: {error}".split()))
    from distdemo.launcher.verdict import report_of

    report = report_of(error)
    what = signals.what_stopped(error)
    if report is not None and report.verdict is not None:
        return DistdemoError(what, report.verdict.why, ALL_EXITED)
    return DistdemoError(what, ALL_EXITED)


# ------------------------------------------------------------------------------- to an exit code


def conclude(session: Session, result: Result) -> int:
    """Write the files, show the result, and return the exit code.

    A signal still interrupts the command, until its verdict or a partial result is shown: then the
    exit code is known, and the verdict agrees with it.
    """
    if result.interrupted:
        signals.enter(signals.Stage.SHOWING)
    else:
        signals.raise_received()
    world = result.world or getattr(result.record, "world", None)
    failed = world if world is not None and not world.ok else None
    output = _Output(session, result, failed)
    unwritten: list[DistdemoError] = []
    if session.is_first:  # in a joined world, only the process of rank 0 writes
        unwritten = output.write()
    try:
        with suppress(BrokenPipeError):  # a closed pipe doesn't change the exit code
            output.show()
            sys.stdout.flush()
    finally:
        for error in unwritten:
            from distdemo.view.failure import show_error

            show_error(error)
    code = EXIT_OK if output.ok and not unwritten else EXIT_FAILED
    if result.interrupted:
        code = signals.exit_code() or EXIT_INTERRUPTED
    signals.shown(code)
    return code


def envelope(command: str, content: dict[str, Any], *, ok: bool, errors: Any) -> dict[str, Any]:
    """Return a document: its version and command, the content, and the errors."""
    from distdemo.encoding import SCHEMA_VERSION

    head = {"schema_version": SCHEMA_VERSION, "command": command, "ok": ok}
    return {**head, **content, "ok": ok, "errors": errors}


@dataclass(frozen=True, slots=True)
class _Output:
    """A result in every format.

    Attributes:
        failed: World that failed, if one did.
    """

    session: Session
    result: Result
    failed: WorldReport | None

    @property
    def ok(self) -> bool:
        """True if the exit code is 0."""
        ok = self.result.ok
        return bool(self.result.record.ok if ok is None else ok)

    def blocks(self, sign: Signs, *, quiet: bool = False) -> Iterator[Block]:
        """Yield the failure, if there is one, and the report."""
        from distdemo.view import blocks
        from distdemo.view.failure import failure

        if self.failed is not None:
            quiet = quiet and self.session.quiet
            yield from failure(self.failed, sign, traceback=self.session.traceback, quiet=quiet)
            if quiet or not self.result.partial:
                return
            yield blocks.Paragraph()
        report = self.result.view(self.result.record, sign)
        if quiet:
            yield from blocks.quiet(report)
        else:
            yield from report if self.session.verbose else blocks.without_details(report)

    def document(self) -> str:
        """Return the JSON document."""
        from distdemo.encoding import dumps, encode

        errors = list(self.result.errors)
        if self.failed is not None and self.failed.verdict is not None:
            verdict = self.failed.verdict
            cause = (verdict.what, verdict.why, verdict.hint, verdict.ranks, verdict.consequences)
            errors.insert(0, Error(*cause))
        content = encode(self.result.record)
        document = envelope(self.session.command, content, ok=self.ok, errors=encode(errors))
        return dumps(document) + "\n"

    def content(self, suffix: str) -> Content:
        """Return the content of a file with this suffix: ``.json``, ``.md``, ..."""
        from distdemo.view.blocks import to_markdown
        from distdemo.view.console import Signs

        if suffix in self.session.exports:
            if isinstance(self.result.record, _NoResult):  # exports have data only
                return ""
            return self.session.exports[suffix](self.result.record)
        if suffix == ".json":
            return self.document()
        if suffix in PICTURES:
            from distdemo.view.slide import draw_picture

            return draw_picture(suffix[1:], f"distdemo {self.session.command}", self.blocks)
        return to_markdown(self.blocks(Signs()), Signs())

    def show(self) -> None:
        """Print the result on standard output."""
        from distdemo.view.blocks import show_blocks, to_markdown
        from distdemo.view.console import messages, output, signs

        console = output()
        sign = signs(console)
        quiet = self.session.quiet or self.result.is_shown
        complete = partial(signals.enter, signals.Stage.SHOWING)
        if self.session.format == "table":
            show_blocks(console, self.blocks(sign, quiet=quiet), complete)
            return
        suffix = f".{self.session.format}"
        is_export = suffix in self.session.exports
        content: Content = ""
        if self.session.format == "markdown":
            content = to_markdown(self.blocks(sign, quiet=quiet), sign)
        elif not is_export or self.failed is None or self.result.partial:
            content = self.content(suffix)
        complete()
        sys.stdout.write(content if isinstance(content, str) else content.decode())
        if is_export and not self.ok:  # exports have data only
            show_blocks(messages(), self.blocks(sign, quiet=True))

    def write(self) -> list[DistdemoError]:
        """Write every file, even if another one failed, and name it. Return the errors."""
        from distdemo.view.console import messages

        output = self.session.output
        files = list(self.result.files)
        if output is not None and output.suffix.lower() in (*WRITTEN, *self.session.exports):
            files.insert(0, ("--output", output, partial(self.content, output.suffix.lower())))
        errors = []
        for flag, path, make in files:
            if path is None:
                continue
            try:
                write_result(flag, path, make)
            except DistdemoError as error:
                errors.append(error)
            else:
                if not self.session.quiet:
                    messages().print(f"Wrote {path}", soft_wrap=True)
        return errors
