"""Import torch quickly and silently, and record the threads that the import starts.

A process can be forked safely while its only threads are the main one and those that the import of
torch started (NumPy's BLAS, which handles forks). Any other thread may hold a lock or belong to
torch's pool, whose copy in a forked child would wait for threads that don't exist. So the threads
are recorded after the import.

The first optimizer imports torch's compiler, which takes half as long as torch itself. A program
whose ranks train imports it once before it forks them; it starts no thread. But the compiler also
creates a cache folder in the temporary directory that would never be removed.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from distdemo.errors import UsageError
from distdemo.platform import system
from distdemo.signals import uninterruptible

MODULES = ("torch.distributed", "torch.multiprocessing")
CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""Variable with the compiler's cache folder; torch sets it too."""
ENDING_S = 0.1  # during which the system may still list a thread that has ended
_known_threads: frozenset[str] | None = None
from_warm_process = False
"""True in a program that was forked with torch loaded, by ``distdemo warm``."""


def load_torch() -> None:
    """Import torch and torch.distributed, once.

    Raises:
        UsageError: torch is missing, broken or without torch.distributed, or rejects an environment
            variable.
    """
    global _known_threads  # noqa: PLW0603 - one process has one set of threads
    if all(module in sys.modules for module in MODULES):
        return
    alone = len(system.thread_ids()) == 1 and "torch" not in sys.modules
    try:
        with _no_garbage(), uninterruptible(), warnings.catch_warnings():
            # Torch works without NumPy, and nothing here needs it.
            warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
            for module in MODULES:
                import_module(module)
    except Exception as error:  # torch may also reject the value of an environment variable
        raise UsageError(
            "torch can't be imported.",
            f"{' '.join(str(error).split()).rstrip('.')}.",
            "Install it into this Python (pip install torch), or unset the variable that it names.",
        ) from error
    if not sys.modules["torch.distributed"].is_available():
        raise UsageError(
            "This torch has no torch.distributed.",
            "It was built without it (USE_DISTRIBUTED=0), and so without gloo.",
            "Install another one into this Python: pip install torch.",
        )
    if alone:
        _known_threads = system.thread_ids()


def fork_hazard() -> str | None:
    """Return the reason why a child forked from this process might hang, or None."""
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch does not say its type
        return "this process has used CUDA"
    until = time.monotonic() + ENDING_S
    while True:
        now = system.thread_ids()
        if len(now) == 1 or (_known_threads is not None and now <= _known_threads):
            return None
        if time.monotonic() > until:
            return f"this process has {len(now)} threads"
        time.sleep(0.005)


def seed_numpy(seed: int | None = None) -> None:
    """Seed NumPy's global generator, if NumPy is loaded; None for a seed of the system."""
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(seed)


def load_compiler(modules: Sequence[str] = ()) -> None:
    """Import the modules that the first optimizer of a process imports, then these modules.

    Raises:
        UsageError: torch is missing or broken.
    """
    load_torch()
    import torch

    with _no_garbage(), without_traces():
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        for module in modules:
            import_module(module)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Disable garbage collection, which would scan half a million new objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def without_traces() -> Iterator[None]:
    """Silence torch's warnings, and keep its compiler from creating a cache folder at import.

    The compiler creates its cache folder unless it exists (torch 2.13, torch/_dynamo/package.py),
    so it is set to one that exists.
    """
    given = os.environ.get(CACHE)
    with uninterruptible(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(OSError):  # no temporary directory: torch will report that
            os.environ[CACHE] = given or tempfile.gettempdir()
        try:
            yield
        finally:
            os.environ.pop(CACHE, None)
            if given is not None:
                os.environ[CACHE] = given
