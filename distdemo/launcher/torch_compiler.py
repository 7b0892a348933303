"""The import of torch's compiler, which the first optimizer drags in: quick, quiet, without traces.

It takes half as long as torch itself, so whoever forks ranks that train does it once, before; it
starts no thread. And it makes a folder for what it might compile, in the temporary directory,
which nobody would ever remove.

Other parts of torch warn of themselves and make such folders too: ``without_traces`` is for them.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from distdemo.launcher.torch_import import load_torch

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""Torch's own name for that folder; it also sets it."""


def load_compiler() -> None:
    """Import whatever the first optimizer of a process would import.

    Raises:
        UsageError: torch is not installed, or broken.
    """
    load_torch()
    import torch

    with without_traces():
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


def load_parts(modules: Sequence[str]) -> None:
    """Import these parts of torch, or what needs them, after the compiler.

    The garbage collector rests meanwhile: it would walk through everything that is loaded.

    Raises:
        UsageError: torch is not installed, or broken.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        load_compiler()
        with without_traces():
            for module in modules:
                import_module(module)
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def without_traces() -> Iterator[None]:
    """Within the block torch's warnings are not heard, and temporary files of it are removed.

    Only for imports: what is imported must not need these files later.
    """
    with warnings.catch_warnings(), _temporary_folder() as folder:
        warnings.simplefilter("ignore")
        given = os.environ.get(VARIABLE)
        before = tempfile.tempdir
        if folder:
            tempfile.tempdir = folder
            os.environ[VARIABLE] = given or folder
        try:
            yield
        finally:
            tempfile.tempdir = before
            os.environ.pop(VARIABLE, None)
            if given is not None:
                os.environ[VARIABLE] = given


@contextmanager
def _temporary_folder() -> Iterator[str]:
    """A folder that is removed again; empty where none can be made, as torch will say itself."""
    try:
        folder = tempfile.mkdtemp(prefix="distdemo-")
    except OSError:
        yield ""
        return
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
