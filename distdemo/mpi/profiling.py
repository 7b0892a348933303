"""Show the ops in torch.profiler, with the names of torch's own MPI backend: ``mpi:all_reduce``."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any

import torch

profiled = torch._C._autograd._profiler_enabled  # noqa: SLF001 - nothing else is as cheap
"""Return True if a profiler records this thread."""


class Event:
    """An op in the profile, from its start to ``end()``.

    Torch marks an event as asynchronous, as those of its own backends are, if it ends in another
    thread. This adds some 50 µs to the event.

    Args:
        what: Name of the op, ``all_reduce``.
        tensors: Inputs, for ``record_shapes``.
    """

    def __init__(self, what: str, tensors: Sequence[torch.Tensor]) -> None:
        autograd: Any = torch.autograd
        record = autograd._record_function_with_args_enter(f"mpi:{what}", *tensors)  # noqa: SLF001 - record_function takes no tensors
        self._ended: Any = torch.futures.Future()
        # As record_function does for a future, which has the profiler's state in any thread.
        torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction(record, self._ended)  # noqa: SLF001 - as above

    def end(self) -> None:
        """End the event."""
        with suppress(RuntimeError):  # the interpreter is shutting down
            _thread().submit(self._ended.set_result, None).result()


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "mpi-profile")
