"""``distdemo warm``: keep torch loaded for the next commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from select import select
from typing import Annotated

import typer

from distdemo.cli.contract import Result, command
from distdemo.cli.session import Session
from distdemo.encoding import decode
from distdemo.errors import DistdemoError, UsageError
from distdemo.launcher import handover
from distdemo.platform import system
from distdemo.warm.records import Answer, WarmReport

MINUTES = 30.0  # by default
LOAD_S = 120.0  # for the new process to import torch
EXIT_S = 2.0  # for the old one to exit, before it is killed
PROGRAM = "distdemo.__main__.run_here"


@dataclass(frozen=True, kw_only=True)
class WarmOptions:
    """Options of ``distdemo warm``."""

    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            min=0.01,
            max=10_000,
            help="Minutes without a command, then it exits; 30 by default.",
        ),
    ] = None
    status: Annotated[
        bool, typer.Option("--status", help="Show if it is running, and why commands don't use it.")
    ] = False
    stop: Annotated[bool, typer.Option("--stop", help="Stop it.")] = False


@command(
    record="distdemo.warm.records:WarmReport",
    epilog="Try: distdemo warm; distdemo warm --status; distdemo warm --stop",
)
def warm(session: Session, options: WarmOptions) -> Result:
    """Keep torch loaded, so that the next commands start faster.

    Start a background process with torch loaded, from which later commands are forked. It exits
    after some minutes without a command, at logout, and when torch or distdemo changes. Commands
    whose result might differ there don't use it. No command starts it unless you ask for it.
    """
    from distdemo.view.progress import spinner
    from distdemo.warm import view

    if not system.is_linux:
        raise UsageError(
            "distdemo warm is for Linux.",
            "It forks commands from a process that has loaded torch, which isn't safe on this "
            "system, and compares them with itself by what Linux says of processes.",
            "Run the command without it: the result is the same, and torch is imported each time.",
        )
    given = (options.status, options.stop, options.minutes is not None)
    if sum(given) > 1:
        raise UsageError("--status, --stop and --minutes can't be combined.", "Use one of them.")
    if options.status:
        return Result(_status(), view.warm_view, ok=True)
    with spinner("loading torch", enabled=session.shows_progress and not options.stop):
        was_warm = _stop()
        if options.stop:
            report = WarmReport("stopped") if was_warm else _status()
            return Result(report, view.warm_view, ok=True)
        _start(60.0 * (options.minutes or MINUTES))
    return Result(_status(), view.warm_view, ok=True)


def _start(idle_s: float) -> None:
    """Start the warm process and wait until torch is loaded.

    Raises:
        DistdemoError: It can't be started.
    """
    from distdemo.launcher.helper import HelperError, start

    null = subprocess.DEVNULL
    helper = start(
        "distdemo.warm.host.serve",
        sys.path,
        stdin=null,
        stdout=null,
        cwd="/",
        start_new_session=True,
    )
    helper.send(idle_s)
    try:
        problem = helper.receive(LOAD_S)
    except HelperError as error:
        problem = f"It {error}"
    if problem:
        helper.close()
        if _status().state == "warm":
            return  # another command has started one at the same time
        raise DistdemoError(
            "The warm process can't be started.",
            f"{problem}.",
            f"Check {handover.folder()}: a folder that only you may use (mode 0700). Commands "
            "work without the process.",
        )
    helper.detach()


def _stop() -> bool:
    """Stop the warm process, if there is one; return True if there was."""
    try:
        with handover.connect() as connection:
            process = system.exit_descriptor(system.peer(connection)[0])
    except ConnectionRefusedError:  # the process was killed, or the machine was switched off
        stale = Path(handover.folder(), handover.NAME)
        with suppress(OSError):  # another command has removed it
            if stale.is_socket():
                stale.unlink()
                stale.parent.rmdir()
        return False
    except OSError:
        return False
    if process is None:  # it has just exited
        return False
    with suppress(ProcessLookupError):
        for number in (signal.SIGTERM, signal.SIGKILL):
            system.send_signal(process, number)
            if select([process], [], [], EXIT_S)[0]:
                break
    os.close(process)
    return True


def _status() -> WarmReport:
    """Return the state of the warm process, as a command that is typed here would find it."""
    try:
        with handover.connect() as connection:
            pid = system.peer(connection)[0]
            answer = decode(Answer, handover.ask(connection, PROGRAM))
    except FileNotFoundError:
        return WarmReport("none")
    except TimeoutError:
        return WarmReport("unusable", cold=f"it hasn't answered for {handover.ANSWER_S:g} seconds.")
    except (OSError, ValueError) as error:
        return WarmReport("unusable", cold=f"{getattr(error, 'strerror', None) or error}.")
    return WarmReport(
        "warm", pid, _memory_bytes(pid), answer.left_s, answer.commands, answer.reason
    )


def _memory_bytes(pid: int) -> int:
    """Return its proportional set size (proc_pid_smaps(5)), or 0 if the system doesn't say."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return 0
