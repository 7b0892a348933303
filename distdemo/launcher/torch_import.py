"""The one import of torch: quick, quiet, and with a note of the threads that it left behind.

A process may be forked safely while it has no thread but its main one, or none but those that
exist since the import of torch itself (NumPy's BLAS, which looks after its own forks). Any other
thread may hold a lock, or belong to torch's pool, whose copy in a forked child would wait for
threads that are not there. So the threads after an import that we did ourselves are remembered.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from importlib import import_module

from distdemo.errors import UsageError

MODULES = ("torch.distributed", "torch.multiprocessing")
_known_threads: frozenset[str] | None = None


def load_torch() -> None:
    """Import torch and torch.distributed, once.

    The garbage collector rests meanwhile: it would walk through half a million new objects.

    Raises:
        UsageError: torch is not installed, or broken.
    """
    global _known_threads  # noqa: PLW0603 - one process has one set of threads
    if all(module in sys.modules for module in MODULES):
        return
    alone = len(threads()) == 1 and "torch" not in sys.modules
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            # Torch works without NumPy, and nothing here needs it.
            warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
            for module in MODULES:
                import_module(module)
    except ImportError as error:
        raise UsageError(
            "torch can't be imported.",
            str(error),
            "Install it into this Python: pip install torch.",
        ) from error
    finally:
        if was_enabled:
            gc.enable()
    if alone:
        _known_threads = threads()


def threads() -> frozenset[str]:
    """The ids of this process's threads, those of C libraries included; empty if unknown."""
    try:
        return frozenset(os.listdir("/proc/self/task"))
    except OSError:
        return frozenset()


def fork_hazard() -> str | None:
    """Why a child forked from this process might hang; None if it can't."""
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch does not say its type
        return "this process has used CUDA"
    now = threads()
    if not now:
        return "this system does not tell which threads a process has"
    if len(now) == 1 or (_known_threads is not None and now <= _known_threads):
        return None
    return f"this process has {len(now)} threads"
