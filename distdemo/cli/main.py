"""Run a command line: from arguments to an exit code, with errors as messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import typer

from distdemo import signals, words
from distdemo.cli.app import app, requested
from distdemo.cli.runner import envelope
from distdemo.cli.types import BadValue, ParserError
from distdemo.cli.unknown_option import unknown_option
from distdemo.errors import (
    ALL_EXITED,
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    MAX_LINE,
    DistdemoError,
    Terminated,
    UsageError,
)
from distdemo.text import cut


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. Never raises."""

    def report_stop(what: str) -> None:
        _report(DistdemoError(what, ALL_EXITED), list(arguments))

    signals.install(report_stop)
    code = EXIT_OK
    try:
        code = _run_command(_flags_last(arguments) or ["--help"])
        sys.stdout.flush()
    except Terminated:
        code = EXIT_FAILED
    except (BrokenPipeError, SystemExit):  # typer makes the second of the first
        _close_stdout()  # the reader (``| head -1``) has closed the pipe
    signals.enter(signals.Stage.SHOWING)
    return signals.exit_code() or code


def _flags_last(arguments: Sequence[str]) -> list[str]:
    """Return the arguments, with ``help scatter`` as ``scatter --help``."""
    flag = words.meanings("flag").get(arguments[0].lower()) if arguments else None
    return list(arguments) if flag is None else [*arguments[1:], flag]


def _run_command(arguments: list[str]) -> int:
    """Run the command, and report errors in the requested format."""
    error: DistdemoError
    try:
        code = app(args=arguments, prog_name="distdemo", standalone_mode=False)
        with suppress(BrokenPipeError):  # it doesn't change the exit code
            sys.stdout.flush()
    except DistdemoError as raised:
        error = raised
    except (KeyboardInterrupt, typer.Abort, Terminated) as stop:
        error = DistdemoError(signals.what_stopped(stop), ALL_EXITED)
    except ParserError as raised:
        error = _usage_error(raised, arguments)
    except BrokenPipeError:
        raise
    except OSError as raised:
        if raised.filename is None:  # standard output has no name, and may be a full disk
            _close_stdout()
        what = f"{raised.filename or 'The result'} could not be read or written."
        error = DistdemoError(what, f"{raised.strerror}.", "Check the disk and the permissions.")
    else:  # Typer may have turned an interruption into an exit code
        if signals.is_shown() or not signals.interrupted():
            return code if isinstance(code, int) else EXIT_OK
        error = DistdemoError("Interrupted.", ALL_EXITED)
    _report(error, arguments)
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED


def _report(error: DistdemoError, arguments: list[str]) -> None:
    """Print an error to standard error, or as a JSON document to standard output."""
    try:
        name, output_format = requested(arguments)
        if output_format == "json":
            from distdemo.encoding import dumps

            lines = {"what": error.what, "why": error.why, "hint": error.hint}
            entry = {name: cut(line, MAX_LINE) for name, line in lines.items()}
            document = envelope(name, {}, ok=False, errors=[entry])
            sys.stdout.write(dumps(document) + "\n")
            sys.stdout.flush()
        else:
            from distdemo.view.failure import show_error

            show_error(error)
    except BrokenPipeError:  # a closed pipe doesn't change the exit code
        _close_stdout()


def _usage_error(error: Any, arguments: list[str]) -> UsageError:
    """Return the parser's error in three lines."""
    if isinstance(error, BadValue):
        return error.usage_error()
    context: Any = getattr(error, "ctx", None)
    if hasattr(error, "possibilities"):  # those of NoSuchOption
        return unknown_option(error.option_name, context, arguments)
    message = str(getattr(error, "format_message", lambda: str(error))()).strip()
    if context is None:  # the parser names no command only then
        why = 'Write the value after a space or "=".'
        return UsageError(message, why, "distdemo COMMAND --help lists its options.")
    return UsageError(message, *_usage(context))


def _usage(context: Any) -> tuple[str, str]:
    """Return how a command is used, and how to see its options."""
    usage = " ".join(context.get_usage().split())
    return usage, f"{context.command_path} --help lists its options."


def _close_stdout() -> None:
    """Point standard output to /dev/null, so that later flushes don't fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
