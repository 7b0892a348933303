"""``python -m distdemo`` and the ``distdemo`` command."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable

from distdemo import signals
from distdemo.launcher.handover import hand_over, runs_only


def main() -> None:
    """Run the command line and exit with its exit code, in the warm process if there is one."""
    signals.install()  # first: imports lose some exceptions
    _open_streams()
    if runs_only("distdemo"):
        hand_over("distdemo.__main__.run_here")
    run_here()


def run_here(unblock: Callable[[], object] = lambda: None) -> None:
    """Run the command line in this process and exit with its exit code.

    Args:
        unblock: Function that unblocks signals, called when they are handled.
    """
    signals.install()
    unblock()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # replace characters that it can't encode
    from distdemo.cli.main import run

    _exit(run(sys.argv[1:]))


def _open_streams() -> None:
    """Open standard streams that the shell closed (``>&-``) to the null device.

    First their descriptors, as otherwise the next file or pipe that is opened would get them.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # returns the lowest free number: this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - lives until exit
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - as above


def _exit(code: int) -> None:
    """Flush and exit. With torch loaded, skip interpreter shutdown, which takes 0.1 s.

    By then all ranks have exited and all temporary files are deleted.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 1
    if "torch" in sys.modules:
        if "multiprocessing.util" in sys.modules:
            sys.modules["multiprocessing.util"]._exit_function()  # noqa: SLF001 - deletes a forkserver's folder
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
