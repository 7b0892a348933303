"""Run a command line: from arguments to an exit code, with errors as messages."""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Sequence

import typer

from distdemo import signals
from distdemo import words as other_names
from distdemo.cli.app import (
    COMMANDS,
    app,
    command_names,
    commands_with,
    joins,
    normalize_argv,
    options_of,
    typer_command,
)
from distdemo.cli.arguments import Syntax, last_value, own_words
from distdemo.cli.runner import CommandEnded, envelope
from distdemo.cli.types import BadValue, did_you_mean, nearest, unknown
from distdemo.errors import (
    ALL_EXITED,
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    DistdemoError,
    JoinedWorldError,
    Terminated,
    UsageError,
)
from distdemo.view.foreign import one_line, printable, write_message

# Typer bundles click or imports it, depending on its release. Either way the third ancestor of
# BadParameter is the base class of the parser's errors.
_ParserError: type[Exception] = typer.BadParameter.__mro__[2]

ERROR_DELAY_S = 1.5  # for rank 0 to find the same mistake and report it


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. Never raises."""
    signals.install()
    code = EXIT_OK
    try:
        words = normalize_argv(arguments or ["--help"])
        if words[0] in ("--show-completion", "--install-completion") and len(words) > 1:
            # Typer finds out the shell itself, and takes its name only if it must not.
            os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
        silent = not _may_print(words)
        if silent:
            # Discard what views print. Standard error stays, for bugs.
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - to the very end
            if not joins(words[0]):
                return EXIT_OK  # one process is enough for this command
        code = _run_command(words, silent=silent)
        sys.stdout.flush()
    except Terminated:
        code = EXIT_FAILED
    except (BrokenPipeError, SystemExit):  # typer makes the second of the first
        _close_stdout()  # the reader (``| head -1``) has closed the pipe
    except OSError as error:  # perhaps a full disk: the result is lost
        _close_stdout()
        text = (
            f"The result could not be written.\n{error}\nTry another place for standard output.\n"
        )
        os.write(2, printable(text).encode(errors="replace"))
        code = EXIT_FAILED
    signals.enter(signals.Stage.SHOWING)
    return signals.exit_code() or code


def _run_command(words: list[str], *, silent: bool) -> int:
    """Run the command, and report errors in the requested format."""
    error: DistdemoError
    signals.on_early_stop(lambda what: _report(_stopped(what), words, silent=silent))
    try:
        code = app(args=words, prog_name="distdemo", standalone_mode=False)
    except CommandEnded as end:
        return end.code
    except DistdemoError as raised:
        error = raised
    except (KeyboardInterrupt, typer.Abort, Terminated) as stop:
        error = _stopped(signals.what_stopped(stop))
    except _ParserError as raised:
        error = _usage_error(raised, words)
    except OSError as raised:
        if "usable temporary directory" in str(raised):  # tempfile's message
            what = "There is no folder for temporary files."
            error = UsageError(what, f"{raised.strerror}.", "Set TMPDIR to one.")
        elif raised.filename is not None:
            what = f"{raised.filename} can't be used."
            error = DistdemoError(what, f"{raised.strerror}.", "Try another file.")
        else:  # standard output has no name
            raise
    else:  # Typer may have turned an interruption into an exit code
        if not signals.interrupted():
            return code if isinstance(code, int) else EXIT_OK
        error = _stopped("Interrupted.")
    _report(error, words, silent=silent)
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED


def _stopped(what: str) -> DistdemoError:
    return DistdemoError(what, ALL_EXITED)


# ------------------------------------------------------------------------- one of many ranks prints


def _may_print(words: Sequence[str]) -> bool:
    """Return True if this process has rank 0, or if no engine started it.

    This is decided before the arguments are parsed, because every rank finds the same errors in
    them and only one may report them.
    """
    from distdemo.joined import engines

    launcher = last_value(words, "--launcher")
    flags = {word.partition("=")[0] for word in own_words(words)}
    if launcher == "local" or flags & {"--nnodes", "--node-rank", "--master"}:
        return True
    try:
        is_named = launcher in engines.ENGINES
        placement = engines.named(launcher, os.environ) if is_named else engines.detect(os.environ)
    except UsageError:
        return True  # the command reports it
    return placement is None or placement.rank == 0


def _report(error: DistdemoError, words: Sequence[str], *, silent: bool) -> None:
    """Print an error to standard error, or as a JSON document to standard output.

    A silent process leaves that to rank 0, unless rank 0 doesn't know the error. A usage error may
    exist on this host only, so the host's first rank reports it in one line. It then waits: an
    engine stops all ranks when one has exited, and rank 0 reports more.
    """
    if silent and not isinstance(error, JoinedWorldError):
        from distdemo.joined import engines

        if isinstance(error, UsageError):
            placement = engines.detect(os.environ)
            if placement is not None and placement.local_size and placement.local_rank == 0:
                source = f"rank {placement.rank} on {socket.gethostname()}"
                write_message(one_line(f"distdemo: {source}: {error.what} {error.why}") + "\n")
            time.sleep(ERROR_DELAY_S)
        return
    try:
        if last_value(words, "--format") == "json" and not silent:
            from distdemo.encoding import dumps

            entry = {"what": error.what, "why": error.why, "hint": error.hint}
            document = envelope(_command(words), {}, ok=False, errors=[entry])
            sys.stdout.write(dumps(document) + "\n")
            sys.stdout.flush()
        else:
            from distdemo.view.failure import show_error

            show_error(error)
    except BrokenPipeError:  # a closed pipe doesn't change the exit code
        _close_stdout()


# ----------------------------------------------------------------------------------- usage errors


def _usage_error(error: Exception, words: Sequence[str]) -> UsageError:
    """Return the parser's error in three lines."""
    if isinstance(error, BadValue):
        return error.usage_error()
    command = _command(words)
    program = f"distdemo {command}".strip()
    lists_options = f"{program} --help lists its options."
    message = str(getattr(error, "format_message", lambda: str(error))()).strip()
    if message.startswith("No such command"):
        return unknown("command", command_names(), command, "distdemo", other_names.COMMANDS)
    if message.startswith("No such option"):
        return _no_such_option(str(getattr(error, "option_name", "")), command, lists_options)
    extra = re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((\S+).*\)", message)
    if extra is not None:
        hint = did_you_mean(_near_options(extra[1], command)) or "Leave it out."
        return UsageError(f"{command} has no argument {extra[1]!r}.", lists_options, hint)
    why = 'Write the value after a space or "=".'
    context = getattr(error, "ctx", None)
    if context is not None:
        usage = " ".join(context.get_usage().split())
        why = f"Usage: {usage.removeprefix('Usage: ')}."
    return UsageError(message, why, lists_options)


def _no_such_option(option: str, command: str, lists_options: str) -> UsageError:
    """Return an error that names the commands with this option, or a similar option."""
    what = f"{command or 'distdemo'} has no option {option}."
    own = options_of(command)
    near = [new for new in other_names.SUGGESTED.get(option, ()) if new in own][:1]
    others = [] if near or command == "run" else commands_with(option, command)
    if others:
        hint = "Leave it out." if command else f"Try distdemo COMMAND {option} ..."
        return UsageError(what, f"These have one: {', '.join(others)}.", hint)
    hint = did_you_mean(near or _near_options(option, command))
    if command == "run":
        why = 'Put your program\'s options after "--".'
        return UsageError(what, why, hint or f"Try distdemo run FILE.py -n 4 -- {option} ...")
    return UsageError(what, lists_options, hint or "Leave it out.")


def _near_options(word: str, command: str) -> list[str]:
    """Return the options that a word is close to, those with a value last."""
    own = options_of(command)
    if command not in COMMANDS:
        return nearest(word, own)
    syntax = Syntax(typer_command(command))
    near = syntax.with_value(word) or nearest(word, own)
    names = [] if near else nearest(word, {name for _, name in syntax.choices})
    return near or [option for name in names for option in syntax.with_value(name)]


def _command(words: Sequence[str]) -> str:
    return words[0] if words and not words[0].startswith("-") else ""


def _close_stdout() -> None:
    """Point standard output to /dev/null, so that later flushes don't fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
