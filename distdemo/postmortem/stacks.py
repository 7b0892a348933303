"""Read the output of ``py-spy dump``."""

from __future__ import annotations

import re

from distdemo.postmortem.evidence import source_line
from distdemo.sanitizer.records import SourceLine

HEAD = re.compile(r"^Process \d+: ", re.MULTILINE)
_THREAD = re.compile(r'^Thread (?:\d+|0x[\da-fA-F]+) \([^)]*\)(?:: "([^"]*)")?', re.MULTILINE)
_FRAME = re.compile(r"^ {2,}(\S.*?) \(([^()]+?)(?::(\d+))?\)\s*$", re.MULTILINE)


def read_stack(text: str) -> tuple[SourceLine, str] | None:
    """Return the main thread's source line and collective, or None if there is no main thread."""
    threads = list(_THREAD.finditer(text))
    ends = [*(each.start() for each in threads[1:]), len(text)]
    for thread, end in zip(threads, ends, strict=True):
        if thread[1] == "MainThread":
            frames = _FRAME.finditer(text[thread.end() : end])
            return source_line((each[2], int(each[3] or 0), each[1]) for each in frames)
    return None
