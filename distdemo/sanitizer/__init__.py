"""Record a job that another launcher starts, such as torchrun.

The program calls :func:`install`, or is started by ``python -m distdemo.sanitizer``.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["install"]


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
        from distdemo.calls.note_files import record

        record(Path(name))
