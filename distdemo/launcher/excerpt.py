"""A traceback without the frames of libraries: the lines that the user wrote."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from distdemo.launcher.stacks import is_library, is_ours


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
