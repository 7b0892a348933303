"""What a rank says of an exception: whose fault it is, which ranks it names, where it was raised.

Asked in the rank, where the traceback still has its frames.
"""

from __future__ import annotations

import dis
import os
import re
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType

from distdemo.launcher.records import Raised
from distdemo.launcher.stacks import is_library, is_ours
from distdemo.launcher.verdict import lost_peer

LONGEST = 200_000  # characters of a message or a traceback
_MISSED = re.compile(r"Ranks? (?P<ranks>\d+(, \d+)*) failed to pass monitoredBarrier")


def raised(rank: int, error: BaseException) -> Raised:
    """The outcome of a rank whose function raised this. ``at`` is now, on the monotonic clock."""
    missing, message = missing_ranks(error), shown(error)
    return Raised(
        rank=rank,
        at=time.monotonic(),
        type=type(error).__qualname__,
        message=message,
        traceback=_told(_user_traceback, error),
        consequence=bool(missing) or (is_backends(error) and lost_peer(message)),
        missing=missing,
        excerpt=_told(excerpt, error),
    )


def shown(thing: object) -> str:
    """Its text, or the beginning and the end of it: a message may hold a whole data set."""
    try:
        text = str(thing)
    except BaseException:  # noqa: BLE001 - a user's __str__ may raise anything
        return "(its text can't be shown)"
    if len(text) <= LONGEST:
        return text
    half, left_out = LONGEST // 2, len(text) - LONGEST
    return f"{text[:half]}\n[... {left_out:,} characters left out ...]\n{text[-half:]}"


def _told(tell: Callable[[BaseException], str], error: BaseException) -> str:
    """What can be told of an error; at least its type and text, whatever they are."""
    try:
        return shown(tell(error))
    except BaseException:  # noqa: BLE001 - as above; and chains of errors may be too long
        return f"{type(error).__qualname__}: {shown(error)}\n"


# -------------------------------------------------------------------------------------- whose fault


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
    code, last = frames[-1].tb_frame.f_code, frames[-1].tb_lasti
    home = os.path.dirname(dist.__file__) + os.sep  # noqa: PTH120 - compared with a frame's str
    return code.co_filename.startswith(home) or dis.opname[code.co_code[last]] != "RAISE_VARARGS"


def missing_ranks(error: BaseException) -> tuple[int, ...]:
    """The ranks that never came to a monitored barrier, as its error names them; () if it isn't.

    The error counts them within the barrier's group; here they are the world's.
    """
    barrier = [t for t in _frames(error) if t.tb_frame.f_code.co_name == "monitored_barrier"]
    found = _MISSED.search(shown(error)) if barrier and is_backends(error) else None
    if found is None:
        return ()
    with suppress(Exception):  # an unusual group: nobody is named then
        import torch.distributed as dist

        group = barrier[-1].tb_frame.f_locals.get("group") or dist.group.WORLD
        members = dist.get_process_group_ranks(group)
        return tuple(members[int(number)] for number in found["ranks"].split(", "))
    return ()


def _frames(error: BaseException) -> list[TracebackType]:
    """The frames of its traceback, the innermost last."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames


# -------------------------------------------------------------------------------------- tracebacks


def _user_traceback(error: BaseException) -> str:
    """The traceback from the user's first frame on, or all of it if the fault is in a launcher."""
    here = os.path.dirname(__file__)  # noqa: PTH120 - two strings, no path
    trace = error.__traceback__
    while trace is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == here:  # noqa: PTH120 - as above
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
    return "".join(lines)


def excerpt(error: BaseException) -> str:
    """The traceback of an exception, and of those that it came from, in the user's frames alone.

    One without such a frame keeps those of libraries, as the user's program is then one.
    """
    told = traceback.TracebackException.from_exception(error)
    for each in _chain(told):
        others = [frame for frame in each.stack if not is_ours(frame.filename)]
        own = [frame for frame in others if not is_library(frame.filename)]
        each.stack = traceback.StackSummary.from_list(own or others)
    return "".join(told.format())


def _chain(told: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """It, what it came from, and what it is a group of: thousands, perhaps."""
    waiting: list[traceback.TracebackException | None] = [told]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ())]
