"""A process of its own beside a site's, which outlives it."""

from __future__ import annotations

import os
import signal


def apart() -> int:
    """Whatever stops the site, the herald ends after it, and writes nothing into the result.

    Returns:
        A descriptor of standard error as it was.
    """
    os.setsid()  # some engines kill the whole process group of a rank
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    stderr = os.dup(2)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # torch's own remarks on its connections would land in the result
        os.dup2(nowhere, stream)
    os.close(nowhere)
    return stderr
