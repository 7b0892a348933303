"""Find the rank that made a different call, and its line.

Every rank writes a note before each call of ``torch.distributed``; the launcher compares the notes
while the ranks run:

- in a rank: ``hooks`` and ``kernels`` intercept calls, ``calls`` extracts what is compared,
  ``buffers`` watches tensors, and ``notes`` defines the text that ranks write
- in the launcher: ``matching`` compares calls by ``rules``, ``findings`` describes errors, and
  ``judge`` decides which are certain, driven by ``inspector`` (a world) or ``recording`` (files)

Other packages use ``inspector.Inspector``, ``hooks.record_calls``, ``timeline.Timeline``, ``text``
and ``records``.

A program that isn't started by ``distdemo run`` or ``python -m distdemo.sanitizer`` calls
:func:`install`.
"""

from __future__ import annotations

import os
from pathlib import Path


def install(folder: str | os.PathLike[str] | None = None) -> None:
    """Record every torch.distributed call of this process in a file.

    Call it once, before or after the process group is created. ``distdemo sanitize FOLDER`` then
    compares the files of all ranks, even if the job was killed.

    Args:
        folder: Folder for the files, one per rank; DISTDEMO_RECORD by default. Without either,
            nothing is recorded, so the call can stay in the program.

    Raises:
        OSError: The folder can't be created.
    """
    name = folder or os.environ.get("DISTDEMO_RECORD")
    if name:
        from distdemo.sanitizer.recording import record

        record(Path(name))
