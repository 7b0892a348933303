"""Tests on several ranks, for pytest, unittest and plain programs.

- ``@pytest.mark.ranks(4)``: run the test on every rank of a new world (``plugin``)
- :func:`run_ranks`: run a function on every rank, in any test
- :func:`traffic`: count the bytes, rounds and calls of a block, on a rank

Importing this package doesn't import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distdemo.testing.counting import BlockTraffic

__all__ = ["RanksError", "RanksWarning", "run_ranks", "traffic"]


class RanksError(AssertionError):
    """Raised when a rank failed, died or made a different call; names the rank and its line."""


class RanksWarning(UserWarning):
    """Warning of the sanitizer in a test on ranks, or that calls of the ranks were not compared."""


def run_ranks(
    fn: Callable[..., Any],
    n: int,
    *args: Any,
    timeout: float = 30.0,
    sanitize: bool = True,
    backend: str = "gloo",
    device: str = "cpu",
    strict: bool = False,
    check_replicas: int | None = None,
    excluded: Sequence[str] = (),
) -> list[Any]:
    """Run ``fn(*args)`` on every rank of a new world, and return the return values in rank order.

    The default process group is initialized. If the first parameters of `fn` are named `rank`, or
    `rank` and `world_size`, it also gets these numbers.

    Args:
        fn: Function to run; if this process has threads, it must be importable.
        n: Number of ranks.
        args: Arguments, the same on every rank.
        timeout: Seconds until the world is stopped.
        sanitize: Compare the ranks' calls, so that a call that would hang fails immediately.
        backend: ``gloo``, ``nccl``, ``mpi``, ...
        device: ``cpu`` or ``cuda``.
        strict: Fail on a warning of the sanitizer, or if calls were not compared.
        check_replicas: Number of steps between comparisons of parameters; fail if replicas differ.
        excluded: Patterns of the names of parameters that aren't compared, such as ``experts.*``.

    Raises:
        RanksError: A rank failed. This is an AssertionError, so that a test fails.
        UsageError: The world can't be started on this machine.
    """
    from distdemo import WorldError, WorldInterrupted, launch

    try:
        return launch(
            fn,
            args,
            n,
            backend,
            timeout,
            device=device,
            sanitize=sanitize,
            strict=strict,
            check_replicas=check_replicas,
            excluded=excluded,
        )
    except WorldInterrupted:
        raise
    except WorldError as error:
        raise RanksError(str(error)) from None


def traffic() -> AbstractContextManager[BlockTraffic]:
    """Return a context manager that counts what its block sends and calls. Collective.

    ::

        with traffic() as used:
            average(gradients)
        assert [call.op for call in used.calls] == ["all_reduce"]

    Every rank of the world must enter and leave the block. It waits at the end for all ranks, so
    blocks of other tests and of other code don't mix.

    Raises:
        RuntimeError: The sanitizer is off.
    """
    from distdemo.testing.counting import counted

    return counted()
