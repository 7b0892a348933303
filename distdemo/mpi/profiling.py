"""Show the ops in torch.profiler, with the names of torch's own MPI backend: ``mpi:all_reduce``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any

import torch

_AUTOGRAD: Any = torch.autograd
_begin: Any = getattr(_AUTOGRAD, "_record_function_with_args_enter", None)
"""Function that begins an event with tensors, which record_function doesn't take."""
profiled = getattr(torch._C._autograd, "_profiler_enabled", bool) if _begin else bool
"""Return True if a profiler records this thread; never in a release of torch without them."""


class ProfilerEvent:
    """An op in the profile, from its start to ``end()``.

    Torch marks an event as asynchronous, like those of its backends, if it ends in another
    thread. This adds some 50 µs to the event.

    Args:
        what: Name of the op, ``all_reduce``.
        tensors: Inputs, for ``record_shapes``.
    """

    def __init__(self, what: str, tensors: Sequence[torch.Tensor]) -> None:
        record = _begin(f"mpi:{what}", *tensors)
        self._ended: Any = torch.futures.Future()
        # As record_function does for a future, which has the profiler's state in any thread.
        torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction(record, self._ended)

    def end(self) -> None:
        """End the event."""
        with suppress(RuntimeError):  # the interpreter is shutting down
            _thread().submit(self._ended.set_result, None).result()


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "mpi-profile")


os.register_at_fork(after_in_child=_thread.cache_clear)
