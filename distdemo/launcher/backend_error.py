"""What an exception in a rank tells: did the backend raise it, and which ranks does it name?

Asked in the rank, where the traceback still has its frames.
"""

from __future__ import annotations

import dis
import os
import re
from contextlib import suppress
from types import TracebackType

_MISSED = re.compile(r"Ranks? (?P<ranks>\d+(, \d+)*) failed to pass monitoredBarrier")


def is_backends(error: BaseException) -> bool:
    """Whether torch.distributed raised this, in C++ or in its own Python, not the user's code.

    gloo's errors are plain RuntimeErrors, like many a user's. C++ raises them within a call, so
    the innermost frame, which may be the user's (``handle.wait()``), stands at no ``raise``.
    """
    import torch.distributed as dist

    if isinstance(error, dist.DistError):
        return True
    frames = _frames(error)
    if not isinstance(error, RuntimeError) or not frames:
        return False
    home = os.path.dirname(dist.__file__) + os.sep  # noqa: PTH120 - compared with a frame's str
    return frames[-1].tb_frame.f_code.co_filename.startswith(home) or not _raises(frames[-1])


def missing_ranks(error: BaseException) -> tuple[int, ...]:
    """The ranks that never came to a monitored barrier, as its error names them; () if it isn't.

    The error counts them within the barrier's group; here they are the world's.
    """
    barrier = [t for t in _frames(error) if t.tb_frame.f_code.co_name == "monitored_barrier"]
    if not barrier or not is_backends(error):
        return ()
    found = _MISSED.search(str(error))
    if found is None:
        return ()
    with suppress(Exception):  # an unusual group: nobody is named then
        import torch.distributed as dist

        group = barrier[-1].tb_frame.f_locals.get("group") or dist.group.WORLD
        workers = dist.get_process_group_ranks(group)
        return tuple(workers[int(number)] for number in found["ranks"].split(", "))
    return ()


def _frames(error: BaseException) -> list[TracebackType]:
    """The frames of its traceback, the innermost last."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames


def _raises(frame: TracebackType) -> bool:
    """Whether a frame stood at a ``raise``; else something that it called, not Python, raised."""
    return dis.opname[frame.tb_frame.f_code.co_code[frame.tb_lasti]] == "RAISE_VARARGS"
