"""A traceback without the frames of libraries: the lines that the user wrote."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from distdemo.launchers.stacks import is_library, is_ours


def excerpt(error: BaseException) -> str:
    """The traceback of an exception, and of those that it came from, in the user's frames alone.

    One without such a frame keeps all of them: the user's program is then a library's.
    """
    told = traceback.TracebackException.from_exception(error)
    for each in _chain(told, set()):
        own = [frame for frame in each.stack if not _is_foreign(frame.filename)]
        if own:
            each.stack = traceback.StackSummary.from_list(own)
    return "".join(told.format())


def _is_foreign(file: str) -> bool:
    return is_ours(file) or is_library(file)


def _chain(
    told: traceback.TracebackException | None, seen: set[int]
) -> Iterator[traceback.TracebackException]:
    """It, what it came from, and what it is a group of."""
    if told is None or id(told) in seen:
        return
    seen.add(id(told))
    yield told
    for other in (told.__cause__, told.__context__, *(getattr(told, "exceptions", None) or ())):
        yield from _chain(other, seen)
