"""Which rank made another call than the others, and on which line.

Every rank notes each call of ``torch.distributed`` before it makes it; the launcher compares the
notes while the ranks run. ``records`` holds what is found, ``notes`` the texts that ranks write,
``hooks`` and ``kernels`` what is put around torch's calls in a rank, ``calls`` what of a call is
noted, ``matching`` the comparison, ``waiting`` who waits for whom, ``judge`` what all notes come
to, ``inspector`` brings them together for a world, ``recording`` for files, and ``timeline`` draws.

Others use ``inspector.Inspector``, ``hooks.noting``, ``timeline.Timeline``, ``text`` and
``records``.

A program that neither ``distdemo run`` nor ``python -m distdemo.sanitizer`` starts calls
:func:`install`.
"""

from __future__ import annotations

import os
from pathlib import Path


def install(folder: str | os.PathLike[str] | None = None) -> None:
    """From now on note every call of torch.distributed of this process in a file.

    Call it once, before or after the process group is made. ``distdemo sanitize FOLDER`` gives the
    verdict of all ranks' files, also of a job that was killed.

    Args:
        folder: that all ranks write to, a file each; by default what DISTDEMO_RECORD names. Where
            neither is given nothing is noted, so the call may stay in a program.

    Raises:
        OSError: the folder can't be made.
    """
    name = folder or os.environ.get("DISTDEMO_RECORD")
    if name:
        from distdemo.sanitizer.recording import record

        record(Path(name))
