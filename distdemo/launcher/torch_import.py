"""The imports of torch: quick, quiet, without traces, and with a note of the threads left behind.

A process may be forked safely while it has no thread but its main one, or none but those that
exist since the import of torch itself (NumPy's BLAS, which looks after its own forks). Any other
thread may hold a lock, or belong to torch's pool, whose copy in a forked child would wait for
threads that are not there. So the threads after an import that we did ourselves are remembered.

torch's compiler, which the first optimizer drags in, takes half as long as torch itself, so a
program whose ranks train imports it once, before it forks them; it starts no thread. But it makes
a folder for what it might compile, in the temporary directory, which nobody would ever remove.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module

from distdemo.errors import UsageError

MODULES = ("torch.distributed", "torch.multiprocessing")
CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""Torch's own name for the compiler's folder; it also sets it."""
ENDING_S = 0.1  # for which the system may still list a thread that has ended
_known_threads: frozenset[str] | None = None
_imports = 0  # under way


def load_torch() -> None:
    """Import torch and torch.distributed, once.

    Raises:
        UsageError: torch is not installed, or broken, or refuses a variable of the environment.
    """
    global _known_threads  # noqa: PLW0603 - one process has one set of threads
    if all(module in sys.modules for module in MODULES):
        return
    alone = len(threads()) == 1 and "torch" not in sys.modules
    try:
        with _no_garbage(), _importing(), warnings.catch_warnings():
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
    except Exception as error:  # a variable of torch's has a value that it refuses
        why = " ".join(str(error).split())
        named = [name for name in re.findall(r"[A-Z_]{4,}", why) if name in os.environ]
        raise UsageError(
            "torch can't be imported.",
            f"{why.partition('. ')[0].rstrip('.')}.",
            f"Unset {named[0] if named else 'the variables that begin with TORCH_'}.",
        ) from error
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
    until = time.monotonic() + ENDING_S
    while True:
        now = threads()
        if not now:
            return "this system does not tell which threads a process has"
        if len(now) == 1 or (_known_threads is not None and now <= _known_threads):
            return None
        if time.monotonic() > until:
            return f"this process has {len(now)} threads"
        time.sleep(0.005)


def load_compiler(modules: Sequence[str] = ()) -> None:
    """Import whatever the first optimizer of a process would, then these modules.

    Raises:
        UsageError: torch is not installed, or broken.
    """
    load_torch()
    import torch

    with _no_garbage(), without_traces():
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        for module in modules:
            import_module(module)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """The garbage collector rests: it would walk through half a million new objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def is_importing() -> bool:
    """Return True while torch is imported.

    A signal's handler must not raise then: modules swallow the exception, or stay half imported.
    """
    return _imports > 0


@contextmanager
def _importing() -> Iterator[None]:
    global _imports  # noqa: PLW0603 - a signal's handler asks for it
    _imports += 1
    try:
        yield
    finally:
        _imports -= 1


@contextmanager
def without_traces() -> Iterator[None]:
    """Silence torch's warnings, and keep its compiler from making a folder when it is imported.

    The compiler makes the folder of its cache where it is missing (torch 2.13,
    torch/_dynamo/package.py). One that is there already satisfies it.
    """
    given = os.environ.get(CACHE)
    with _importing(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(OSError):  # there is none, as torch will say itself
            os.environ[CACHE] = given or tempfile.gettempdir()
        try:
            yield
        finally:
            os.environ.pop(CACHE, None)
            if given is not None:
                os.environ[CACHE] = given
