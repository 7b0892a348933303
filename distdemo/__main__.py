"""``python -m distdemo`` and the ``distdemo`` command."""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    _open_streams()
    try:
        from distdemo.cli.main import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while the command line itself was being imported
        code = 130
    _leave(code)


def _open_streams() -> None:
    """Have streams that can be written to.

    Python has none where the shell closed one (``>&-``): what is written then goes nowhere. Their
    descriptors are taken first, or the next file or pipe that is opened would be one of them.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - as long as Python's own
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - as above
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a sign that it lacks is no reason to fail


def _leave(code: int) -> None:
    """Flush and go. With torch loaded, taking the interpreter apart would cost a tenth of a second.

    Nothing is left to do by then: the ranks are gone and no file of ours exists.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 1
    if "torch" in sys.modules:
        if "multiprocessing.util" in sys.modules:
            sys.modules["multiprocessing.util"]._exit_function()  # noqa: SLF001 - a forkserver's folder
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
