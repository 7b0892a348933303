"""From arguments to an exit code: the one place where errors become messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from distdemo.cli.main_exits import AlreadyTold
from distdemo.cli.runner import AlreadyTold as Told
from distdemo.cli.signals import Signals
from distdemo.cli.silence import JOINING, fall_silent, murmur, speaks
from distdemo.cli.types import BadValue
from distdemo.cli.words import foreign, joined, kept_apart, own
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


FEW = 6  # operations that are all named


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line and return its exit code; never raises."""
    signals = Signals()
    signals.install()
    code = EXIT_OK
    try:
        if not speaks(arguments):
            fall_silent()
            if not _joins(arguments):
                return EXIT_OK  # nothing for which more than one process is needed
        code = _carry_out(arguments or ["--help"], signals)
        sys.stdout.flush()
    except Terminated:
        code = EXIT_FAILED
    except (BrokenPipeError, SystemExit):  # typer makes the second of the first
        _close_stdout()  # whoever read it (``| head -1``) has seen what it wanted
    except OSError as error:
        code = _unwritable(error)
    return signals.code or code


def _carry_out(  # noqa: PLR0911 - one return a way to end
    arguments: Sequence[str], signals: Signals
) -> int:
    """Run the command; say what went wrong, in the format that was asked for."""
    code = None
    try:
        from distdemo.cli.app import app

        code = app(args=_rewritten(arguments), prog_name="distdemo", standalone_mode=False)
    except DistdemoError as error:
        _say(error, arguments)
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
    except typer.Exit as error:
        code = error.exit_code
    except (AlreadyTold, Told) as error:
        return error.code
    except (KeyboardInterrupt, typer.Abort):
        signals.interrupted = True
    except Terminated:
        _say(_stopped("Stopped by SIGTERM."), arguments)
        return EXIT_FAILED
    except _ClickUsageError as error:
        _say(_usage(error, arguments), arguments)
        return EXIT_USAGE
    except _ClickError as error:
        _say(UsageError(str(error)), arguments)
        return EXIT_USAGE
    if signals.interrupted:  # typer may have made an exit code of it
        _say(_stopped("Interrupted."), arguments)
        return EXIT_INTERRUPTED
    return code if isinstance(code, int) else EXIT_OK


# --------------------------------------------------------------------------------------- messages


def _say(error: DistdemoError, arguments: Sequence[str]) -> None:
    """Tell the error; that nobody reads it any more does not change the exit code."""
    try:
        _tell(error, arguments)
    except BrokenPipeError:
        _close_stdout()


def _joins(arguments: Sequence[str]) -> bool:
    """Whether this command runs as a part of a world that an engine started."""
    from distdemo import ops

    name = _command(arguments)
    from distdemo.cli.app import joins

    return name in JOINING or ops.find(name) is not None or joins(name)


def _tell(error: DistdemoError, arguments: Sequence[str]) -> None:
    """The error on standard error, or as a JSON document on standard output."""
    silent = not speaks(arguments)
    if silent and not isinstance(error, LonelyError):
        if isinstance(error, UsageError):
            murmur(
                error, arguments
            )  # rank 0 has found the same or was told, unless it could not be told
        return
    if _wants_json(arguments) and not silent:
        from distdemo.view.document import dumps, error_document

        sys.stdout.write(dumps(error_document(_command(arguments), error)) + "\n")
        sys.stdout.flush()
        return
    from distdemo.view.console import messages, show
    from distdemo.view.failure import error_text

    show(messages(), error_text(error))


def _stopped(what: str) -> DistdemoError:
    return DistdemoError(what, "All ranks are gone, nothing was left behind.")


def _usage(error: Exception, arguments: Sequence[str]) -> UsageError:
    """The parser's error in our three lines."""
    if isinstance(error, BadValue):
        return error.usage_error(_flag(error))
    message = getattr(error, "format_message", lambda: str(error))()
    command = _command(arguments)
    whole = f"distdemo {command} --help" if command else "distdemo --help"
    what, why = f"{message}".strip(), "The command line could not be read."
    if message.startswith("No such command"):
        return _unknown_command(command)
    if command == "run" and message.startswith("No such option"):
        return foreign(_word(what))
    elsewhere = _takers(message)
    if elsewhere:
        why = f"It belongs to: {', '.join(elsewhere)}."
        return UsageError(f"{_word(what)} means nothing to {command}.", why, "Leave it out.")
    context = getattr(error, "ctx", None)
    if context is not None:
        why = " ".join(context.get_usage().split()).removeprefix("Usage: ")
        why = f"It is used like this: {why}"
    return UsageError(what, why, f"{whole} lists every option.")


def _flag(error: BadValue) -> str:
    """The option's long name, or an argument's as help shows it."""
    if error.param is None:
        return ""
    long = [name for name in error.param.opts if name.startswith("--")]
    return long[0] if long else str(error.param.metavar or error.param.opts[0])


def _unknown_command(name: str) -> UsageError:
    from distdemo.cli.parse import unknown

    return unknown("command", _names(), name, "distdemo")


def _names() -> list[str]:
    """Of all commands."""
    from distdemo.cli.app import COMMANDS, app

    return [*(str(command.name) for command in app.registered_commands), *(c[0] for c in COMMANDS)]


def _takers(message: str) -> list[str]:
    """The commands that take the option which this one does not; empty if none does.

    Operations come first; more than a few of them are only counted.
    """
    from distdemo import ops
    from distdemo.cli.app import app
    from distdemo.cli.legacy_options import flags_of

    if not message.startswith("No such option") or len(message.split()) < 4:
        return []
    name = _word(message)
    name = name if name.startswith("-") else f"--{name}"
    takers = [
        str(each.name)
        for each in app.registered_commands
        if each.callback is not None and name in flags_of(each.callback)
    ]
    found = [taker for taker in takers if ops.find(taker) is not None]
    others = [taker for taker in takers if taker not in found]
    if len(found) > FEW:
        count, known = len(found), len(ops.REGISTRY)
        found = ["every operation" if count == known else f"{count} of {known} operations"]
    return [*found, *others]


def _word(message: str) -> str:
    """The option that a parser's "No such option" names; its releases quote it differently."""
    return message.split()[3].strip("'\".:")


def _command(arguments: Sequence[str]) -> str:
    """The command's name: the first argument that is one, else the first that is no option.

    Of a command of two words both, ``bench links``.
    """
    word = _first_word(arguments)
    if not word:
        return ""
    place = arguments.index(word)
    return joined(arguments[place:], _names())[0]


def _first_word(arguments: Sequence[str]) -> str:
    words = [argument for argument in own(arguments) if not argument.startswith("-")]
    if not words or words[0] == arguments[0]:
        return words[0] if words else ""
    known = _names()
    return next((word for word in words if word.replace("_", "-") in known), words[0])


def _with_dashes(arguments: Sequence[str]) -> list[str]:
    """The same with torch's spelling of a command, ``all_reduce``, turned into ours, and in front.

    ``distdemo --format json all-reduce`` is what people type, too.
    """
    word = _first_word(arguments)
    if not word:
        return list(arguments)
    place = arguments.index(word)
    command, *rest = joined(arguments[place:], _names())
    return [command.replace("_", "-"), *arguments[:place], *rest]


def _rewritten(arguments: Sequence[str]) -> list[str]:
    """The same in the parser's own terms: it knows no option whose value may be left out."""
    words: list[str] = []
    given = _with_dashes(arguments)
    if given[:1] == ["run"]:
        return kept_apart(given)
    pairs = zip(given, [*given, ""][1:], strict=True)
    for word, following in pairs:
        words.append(word)
        if word == "--uneven" and _is_list(following):  # --uneven 3,0,7
            words.append("--sizes")
        if word == "--probe" and (not following or following.startswith("-")):
            words.append("gloo")
    return words


def _is_list(word: str) -> bool:
    return bool(word) and all(part.strip().isdigit() for part in word.split(","))


def _wants_json(arguments: Sequence[str]) -> bool:
    words = own(arguments)
    pairs = zip(words, [*words, ""][1:], strict=True)
    given = [second for first, second in pairs if first == "--format"]
    given += [first.partition("=")[2] for first in words if first.startswith("--format=")]
    return bool(given) and given[-1].lower() == "json"


# ----------------------------------------------------------------------------------- lost streams


def _unwritable(error: OSError) -> int:
    """Standard output can't be written to, a full disk perhaps: the result was not delivered."""
    _close_stdout()
    text = f"The result could not be written.\n{error}\nTry another place for standard output.\n"
    os.write(2, text.encode(errors="replace"))
    return EXIT_FAILED


def _close_stdout() -> None:
    """Let later flushes go nowhere instead of failing again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
