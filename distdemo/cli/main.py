"""Run a command line: from arguments to an exit code, with errors as messages."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import typer

from distdemo import signals, words
from distdemo.cli.app import COMMANDS, PROGRAMS, app, find_command, format_of
from distdemo.cli.runner import CommandEnded, envelope
from distdemo.cli.types import BadValue
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
from distdemo.view.format import listing

# Typer bundles click or imports it, depending on its release. Either way the third ancestor of
# BadParameter is the base class of the parser's errors.
_ParserError: type[Exception] = typer.BadParameter.__mro__[2]


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
    flag = words.FLAGS.get(arguments[0].lower()) if arguments else None
    return list(arguments) if flag is None else [*arguments[1:], flag]


def _run_command(arguments: list[str]) -> int:
    """Run the command, and report errors in the requested format."""
    error: DistdemoError
    try:
        code = app(args=arguments, prog_name="distdemo", standalone_mode=False)
        sys.stdout.flush()
    except CommandEnded as end:
        return end.code
    except DistdemoError as raised:
        error = raised
    except (KeyboardInterrupt, typer.Abort, Terminated) as stop:
        error = DistdemoError(signals.what_stopped(stop), ALL_EXITED)
    except _ParserError as raised:
        error = _usage_error(raised, arguments)
    except BrokenPipeError:
        raise
    except OSError as raised:
        if raised.filename is None:  # standard output has no name, and may be a full disk
            _close_stdout()
        what = f"{raised.filename or 'The result'} could not be read or written."
        error = DistdemoError(what, f"{raised.strerror}.", "Check the disk and the permissions.")
    else:  # Typer may have turned an interruption into an exit code
        if not signals.interrupted():
            return code if isinstance(code, int) else EXIT_OK
        error = DistdemoError("Interrupted.", ALL_EXITED)
    _report(error, arguments)
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED


def _report(error: DistdemoError, arguments: list[str]) -> None:
    """Print an error to standard error, or as a JSON document to standard output."""
    try:
        name, output_format = format_of(arguments)
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


def _usage_error(error: Exception, arguments: list[str]) -> UsageError:
    """Return the parser's error in three lines."""
    if isinstance(error, BadValue):
        return error.usage_error()
    context: Any = getattr(error, "ctx", None)
    program = "distdemo COMMAND" if context is None else context.command_path
    message = str(getattr(error, "format_message", lambda: str(error))()).strip()
    why = 'Write the value after a space or "=".'  # the parser names no command only then
    if context is not None:
        why = " ".join(context.get_usage().split())
    hint = f"{program} --help lists its options."
    extra = re.match(r"Got unexpected extra argument\S* \((.*)\)", message)
    flags = (
        [] if context is None else [flag for param in context.command.params for flag in param.opts]
    )
    option = getattr(error, "option_name", "")
    if extra is not None:
        message = f"Unexpected argument {extra[1]!r}."
        hint = f"Try {program} -n {extra[1]}." if extra[1].isdecimal() and "-n" in flags else hint
    elif message.startswith("No such option"):
        message = f"{program} has no option {option}."
        near = words.closest(option, flags)
        known = words.hint(option.lstrip("-"))
        separator = (
            'Put your program\'s options after "--".' if context.info_name in PROGRAMS else ""
        )
        if context.parent is None:
            why = "Options follow the command."
            hint = f"Try {_command_first(arguments)}."
        elif near:
            why = separator
            hint = f"Did you mean {listing(near, 'or')}?"
        elif separator:
            hint = separator
        elif known is not None:
            why = known[0]
            hint = f"Try {known[1]}."
    return UsageError(message, why, hint)


def _command_first(arguments: list[str]) -> str:
    """Return the command line with its command, by default hello, before the options."""
    own = [word for word in arguments if find_command([word])[0] in COMMANDS]
    command = (own or ["hello"])[0]
    rest = [word for word in arguments if word != command]
    return shlex.join(["distdemo", command, *rest])


def _close_stdout() -> None:
    """Point standard output to /dev/null, so that later flushes don't fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
