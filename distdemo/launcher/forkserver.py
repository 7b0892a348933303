"""Imports of a forkserver, which it makes once for all ranks."""

from __future__ import annotations

import atexit
import os

import distdemo.launcher.rank_process  # noqa: F401 - for the ranks

_server = os.getpid()


def _exit() -> None:
    """Exit at once: freeing what torch has loaded takes seconds. Ranks have their own end."""
    if os.getpid() == _server:
        os._exit(0)


atexit.register(_exit)
