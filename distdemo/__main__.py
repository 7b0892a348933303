"""``python -m distdemo`` and the ``distdemo`` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        from distdemo.cli.main import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while the command line itself was being imported
        code = 130
    _leave(code)


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
        import os

        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
