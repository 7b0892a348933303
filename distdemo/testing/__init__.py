"""Tests on several ranks: a pytest plugin, and the same for unittest and plain programs.

- ``@pytest.mark.ranks(4)``: the test runs on every rank of a new world (``plugin``)
- :func:`run_ranks`: run a function so, in any test
- :func:`ranks`: the same settings for several such runs

Importing this doesn't import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

__all__ = ["RanksError", "ranks", "run_ranks"]


class RanksError(AssertionError):
    """A rank failed, died, or made a call that the others didn't; says which one, and its line."""


class Run(Protocol):
    """Runs a function on every rank of a new world; see :func:`run_ranks`."""

    def __call__(self, fn: Callable[..., Any], *args: Any) -> list[Any]:  # noqa: ANN401 - the function's own
        """What the ranks returned, in order."""


def run_ranks(  # noqa: PLR0913 - each is one setting of a world, by keyword
    fn: Callable[..., Any],
    n: int,
    *args: Any,  # noqa: ANN401 - the function's own
    timeout: float = 30.0,
    sanitize: bool = True,
    backend: str = "gloo",
    device: str = "cpu",
) -> list[Any]:
    """Run ``fn(*args)`` on every rank of a new world, and return what the ranks returned, in order.

    The default process group is ready. ``fn(rank, *args)`` and ``fn(rank, world_size, *args)`` get
    these numbers first, if their first parameters are so named.

    Args:
        fn: any function; where this process has threads, one that can be imported.
        n: how many ranks.
        args: the same for every rank.
        timeout: seconds until the world is ended.
        sanitize: compare the ranks' calls: one that would hang fails at once.
        backend: ``gloo``, ``nccl``, ``mpi``, ...
        device: ``cpu`` or ``cuda``.

    Raises:
        RanksError: an AssertionError, so that a test fails.
        UsageError: no such world can be started here.
    """
    from distdemo import WorldError, WorldInterrupted, launch

    try:
        return launch(fn, args, n, backend, timeout, device=device, sanitize=sanitize)
    except WorldInterrupted:
        raise
    except WorldError as error:
        raise RanksError(str(error)) from None


@contextmanager
def ranks(n: int, **settings: Any) -> Iterator[Run]:  # noqa: ANN401 - those of run_ranks
    """Within the block, run functions on ``n`` ranks; each run has a world of its own.

    ::

        with ranks(4, timeout=10) as run:
            assert run(work) == [6, 6, 6, 6]

    Args:
        n: how many ranks.
        settings: those of :func:`run_ranks`.
    """

    def run(fn: Callable[..., Any], *args: Any) -> list[Any]:  # noqa: ANN401 - the function's own
        return partial(run_ranks, fn, n, **settings)(*args)

    yield run
