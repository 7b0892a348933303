"""From arguments to an exit code: the one place where errors become messages."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence

import typer

from distdemo.cli.arguments import END, arrange, last_value
from distdemo.cli.runner import AlreadyTold, envelope
from distdemo.cli.signals import Signals
from distdemo.cli.types import BadValue, nearest, unknown
from distdemo.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    DistdemoError,
    LonelyError,
    Terminated,
    UsageError,
)

# typer brings its own copy of click or imports click, depending on its release; either way the
# errors of the parser are the ancestors of the one that typer shows.
_ClickUsageError: type[Exception] = typer.BadParameter.__mro__[1]
_ClickError: type[Exception] = typer.BadParameter.__mro__[2]

HOLD_BACK = 1.5  # seconds for rank 0 to find the same mistake and say so


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line and return its exit code; never raises."""
    signals = Signals()
    signals.install()
    code = EXIT_OK
    try:
        from distdemo.cli.app import app, joins, names

        words = arrange(arguments or ["--help"], names())
        silent = not _speaks(words)
        if silent:
            # What the views print goes nowhere. Standard error stays, for what is a fault of ours.
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - to the very end
            if not joins(words[0]):
                return EXIT_OK  # nothing for which more than one process is needed
        code = _carry_out(app, words, signals, silent=silent)
        sys.stdout.flush()
    except Terminated:
        code = EXIT_FAILED
    except (BrokenPipeError, SystemExit):  # typer makes the second of the first
        _close_stdout()  # whoever read it (``| head -1``) has seen what it wanted
    except OSError as error:  # a full disk perhaps: the result was not delivered
        _close_stdout()
        text = (
            f"The result could not be written.\n{error}\nTry another place for standard output.\n"
        )
        os.write(2, text.encode(errors="replace"))
        code = EXIT_FAILED
    return signals.code or code


def _carry_out(app: typer.Typer, words: list[str], signals: Signals, *, silent: bool) -> int:
    """Run the command; say what went wrong, in the format that was asked for."""
    code = None
    try:
        code = app(args=words, prog_name="distdemo", standalone_mode=False)
    except DistdemoError as error:
        _tell(error, words, silent=silent)
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
    except typer.Exit as error:
        code = error.exit_code
    except AlreadyTold as error:
        return error.code
    except (KeyboardInterrupt, typer.Abort):
        signals.interrupted = True
    except Terminated:
        _tell(_stopped("Stopped by SIGTERM."), words, silent=silent)
        return EXIT_FAILED
    except _ClickUsageError as error:
        _tell(_usage(error, words), words, silent=silent)
        return EXIT_USAGE
    except _ClickError as error:
        _tell(UsageError(str(error)), words, silent=silent)
        return EXIT_USAGE
    if signals.interrupted:  # typer may have made an exit code of it
        _tell(_stopped("Interrupted."), words, silent=silent)
        return EXIT_INTERRUPTED
    return code if isinstance(code, int) else EXIT_OK


# --------------------------------------------------------------------- one rank of several speaks


def _speaks(words: Sequence[str]) -> bool:
    """Whether this process may print: it has rank 0, or no engine started it.

    Asked before the arguments are parsed: what is wrong with them is found on every rank, and
    said by one.
    """
    from distdemo.launcher.joined import engines

    launcher = last_value(words, "--launcher")
    terminals = ("--nnodes", "--node-rank", "--master")
    own = words[: words.index(END)] if END in words else words
    if launcher == "local" or any(word.partition("=")[0] in terminals for word in own):
        return True
    try:
        named = launcher in engines.ENGINES
        place = engines.named(launcher, os.environ) if named else engines.detect(os.environ)
    except UsageError:
        return True  # the command itself will say so
    return place is None or place.rank == 0


def _murmur(error: DistdemoError) -> None:
    """On a host without rank 0, say in one line what is wrong: it may be wrong here alone.

    Returns after a moment: an engine ends all ranks when the first has left, and rank 0 has more
    to say.
    """
    from distdemo.launcher.joined import engines

    place = engines.detect(os.environ)
    if place is not None and place.local_size and place.local_rank == 0:
        where = f"rank {place.rank} on {socket.gethostname()}"
        sys.stderr.write(f"distdemo: {where}: {error.what} {error.why}\n")
    time.sleep(HOLD_BACK)


# --------------------------------------------------------------------------------------- messages


def _tell(error: DistdemoError, words: Sequence[str], *, silent: bool) -> None:
    """The error on standard error, or as a JSON document on standard output."""
    if silent and not isinstance(error, LonelyError):
        if isinstance(error, UsageError):
            _murmur(error)  # rank 0 has found the same or was told, unless it could not be told
        return
    try:
        if last_value(words, "--format") == "json" and not silent:
            from distdemo.encoding import dumps

            entry = {"what": error.what, "why": error.why, "hint": error.hint}
            document = envelope(_command(words), {}, ok=False, errors=[entry])
            sys.stdout.write(dumps(document) + "\n")
            sys.stdout.flush()
            return
        from distdemo.view.console import messages, show
        from distdemo.view.failure import error_text

        show(messages(), error_text(error))
    except BrokenPipeError:  # that nobody reads it any more does not change the exit code
        _close_stdout()


def _command(words: Sequence[str]) -> str:
    return words[0] if words and not words[0].startswith("-") else ""


def _stopped(what: str) -> DistdemoError:
    return DistdemoError(what, "All ranks are gone, nothing was left behind.")


def _usage(error: Exception, words: Sequence[str]) -> UsageError:
    """The parser's error in our three lines."""
    command = _command(words)
    message = str(getattr(error, "format_message", lambda: str(error))()).strip()
    option = getattr(error, "option_name", "")
    if isinstance(error, BadValue):
        return error.usage_error(_flag(error))
    if message.startswith("No such command"):
        from distdemo.cli.app import names

        return unknown("command", names(), command, "distdemo")
    if option and command == "run":
        return UsageError(
            f"run has no option {option}.",
            "An option of your own program comes after --.",
            f"Try distdemo run FILE.py -n 4 -- {option} ...",
        )
    if option:
        return _no_such_option(option, command)
    context = getattr(error, "ctx", None)
    usage = "" if context is None else " ".join(context.get_usage().split())
    why = f"It is used like this: {usage.removeprefix('Usage: ')}." if usage else ""
    return UsageError(message, why, f"distdemo {command} --help lists every option.")


def _no_such_option(option: str, command: str) -> UsageError:
    """Which commands have it; else the nearest of this command."""
    from distdemo.cli.app import options_of, takers

    others = takers(option)
    if others:
        return UsageError(
            f"{option} means nothing to {command or 'distdemo'}.",
            f"It belongs to: {', '.join(others)}.",
            "Leave it out.",
        )
    near = nearest(option, [name for name in options_of(command) if name.startswith("--")])
    return UsageError(
        f"{command or 'distdemo'} has no option {option}.",
        f"distdemo {command} --help lists all that it has.".replace("  ", " "),
        f"Did you mean {' or '.join(near)}?" if near else "Leave it out.",
    )


def _flag(error: BadValue) -> str:
    """The option's long name, or an argument's as help shows it."""
    if error.param is None:
        return ""
    long = [name for name in error.param.opts if name.startswith("--")]
    return long[0] if long else str(error.param.metavar or error.param.opts[0])


def _close_stdout() -> None:
    """Let later flushes go nowhere instead of failing again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
