"""Describe an exception in its rank: cause or consequence, ranks it names, traceback.

This runs in the rank, where the traceback still has its frames.
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
from typing import Any

from distdemo.errors import DistdemoError
from distdemo.launcher.records import CodeLine, Position, Raised
from distdemo.launcher.stacks import is_library, is_ours, original_name
from distdemo.launcher.verdict import lost_peer
from distdemo.text import cut

_MISSED = re.compile(r"Ranks? (?P<ranks>\d+(, \d+)*) failed to pass monitoredBarrier")


def raised(rank: int, error: BaseException) -> Raised:
    """Return the outcome of a rank whose function raised; ``at`` is now, on the monotonic clock."""
    missing = missing_ranks(error)
    message = text_of(error)
    why = hint = ""
    if isinstance(error, DistdemoError):
        message, why, hint = map(text_of, (error.what, error.why, error.hint))
    return Raised(
        rank=rank,
        at=time.monotonic(),
        type=type(error).__qualname__,
        message=message,
        where=_position(error),
        traceback=text_of(error, traceback_of),
        consequence=bool(missing) or has_lost_peer(error),
        missing=missing,
        why=why,
        hint=hint,
    )


def text_of(thing: Any, describe: Callable[[Any], str] = str) -> str:
    """Return the text of an object, shortened in the middle: it may hold a whole data set.

    Args:
        thing: Object to describe.
        describe: Function that returns the text.
    """
    try:
        text = describe(thing)
    except BaseException:  # a user's __str__ may raise anything; chained errors recurse too deeply
        return "(its text can't be shown)"
    return cut(text)


# -------------------------------------------------------------------------------------------- cause


def is_from_backend(error: BaseException) -> bool:
    """Return True if torch.distributed raised the error, in C++ or Python, not the user's code.

    gloo raises plain RuntimeErrors, as user code may. They come from a call into C++, so the
    innermost frame, which may be the user's (``handle.wait()``), isn't at a ``raise`` statement.
    """
    import torch.distributed as dist

    if isinstance(error, dist.DistError):
        return True
    frames = _frames(error)
    if not isinstance(error, RuntimeError) or not frames:
        return False
    code = frames[-1].tb_frame.f_code
    last = frames[-1].tb_lasti
    home = os.path.dirname(dist.__file__) + os.sep  # compared with a frame's str
    return code.co_filename.startswith(home) or dis.opname[code.co_code[last]] != "RAISE_VARARGS"


def has_lost_peer(error: BaseException) -> bool:
    """Return True if the backend raised the error only because a peer is lost.

    Errors of the MPI backend state it; other backends only say it in their message.
    """
    stated: bool | None = vars(error).get("lost_peer")
    says_so = lost_peer(text_of(error)) if stated is None else stated
    return says_so and is_from_backend(error)


def missing_ranks(error: BaseException) -> tuple[int, ...]:
    """Return the ranks that a monitored barrier's error reports as missing; () for other errors.

    The error has numbers within the barrier's group; the result has numbers within the world.
    """
    barrier = [t for t in _frames(error) if t.tb_frame.f_code.co_name == "monitored_barrier"]
    match = _MISSED.search(text_of(error)) if barrier and is_from_backend(error) else None
    if match is None:
        return ()
    with suppress(Exception):  # an unusual group: no rank is named
        import torch.distributed as dist

        group = barrier[-1].tb_frame.f_locals.get("group") or dist.group.WORLD
        members = dist.get_process_group_ranks(group)
        return tuple(members[int(number)] for number in match["ranks"].split(", "))
    return ()


def _frames(error: BaseException) -> list[TracebackType]:
    """Return the frames of the traceback, innermost last."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames


def _position(error: BaseException) -> Position | None:
    """Return the innermost line of the user's code that the exception passed, if any."""
    for trace in reversed(_frames(error)):
        code = trace.tb_frame.f_code
        if not is_ours(code.co_filename) and not is_library(code.co_filename):
            name = original_name(code.co_name)
            return Position("", CodeLine(code.co_filename, trace.tb_lineno, name))
    return None


# -------------------------------------------------------------------------------------- tracebacks


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception and of those chained to it, without distdemo's frames.

    The frames of libraries before the user's first one are left out too: they started the program.
    A traceback with distdemo's frames only, which shows a bug in distdemo, keeps them.
    """
    whole = traceback.TracebackException.from_exception(error)
    for member in _chain(whole):
        frames = [frame for frame in member.stack if not is_ours(frame.filename)]
        own = (at for at, frame in enumerate(frames) if not is_library(frame.filename))
        frames = frames[next(own, 0) :]
        member.stack = traceback.StackSummary.from_list(frames or member.stack)
    return "".join(whole.format())


def _chain(first: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """Yield an exception, its causes and contexts, and members of groups; not recursively."""
    waiting: list[traceback.TracebackException | None] = [first]
    seen: set[int] = set()
    while waiting:
        member = waiting.pop()
        if member is None or id(member) in seen:
            continue
        seen.add(id(member))
        yield member
        waiting += [member.__cause__, member.__context__]
        waiting += getattr(member, "exceptions", None) or ()
