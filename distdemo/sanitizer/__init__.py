"""Find the rank that made a different call, and its line.

Every rank writes a note before each call of ``torch.distributed``; the launcher compares the notes
while the ranks run. From a call to a finding:

1. ``hooks`` intercepts a call from Python, ``kernels`` one from C++, in the rank that makes it.
2. ``recorder`` writes a note: ``calls`` extracts what must be equal on all ranks. ``buffers``
   watches the tensors on request.
3. ``notes`` defines the text of the note, and the shared memory that it is written to.
4. In the launcher, ``inspector`` reads this memory; ``recording`` writes and reads files instead.
5. ``judge`` passes each note to ``matching``, which matches the ranks' calls by ``rules``;
   ``shifts`` finds calls that match only by accident.
6. ``judge`` decides when an error is certain, and ``findings`` describes it. ``order`` and
   ``lateness`` follow the calls for warnings and for the ranks that were late.
7. ``text`` and ``view`` show the finding, and ``timeline`` draws all calls.

Commands that run programs use ``hooks``, ``inspector``, ``timeline``, ``records``, ``text`` and
``view``. ``postmortem`` also reads recordings, and matches calls that it takes from other files.

A program that another launcher starts, such as torchrun, calls :func:`install`, or is started by
``python -m distdemo.sanitizer``.
"""

from __future__ import annotations

import os
from pathlib import Path


def install(folder: str | os.PathLike[str] | None = None) -> None:
    """Record every torch.distributed call of this process in a file.

    Call it once, before or after the process group is created. ``distdemo postmortem FOLDER`` then
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
