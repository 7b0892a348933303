"""``distdemo.launch``: run a function of your own on every rank of a new world on this machine."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distdemo.errors import UsageError, WorldError, WorldInterrupted
from distdemo.launcher.checks import check_world
from distdemo.launcher.leading import leading
from distdemo.launcher.records import WorldReport, WorldSpec

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank


def launch(  # noqa: PLR0913 - each is one setting of a world, by keyword
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    world_size: int = 4,
    backend: str = "gloo",
    timeout: float = 30.0,
    *,
    device: str = "cpu",
    start_method: str = "auto",
) -> list[Any]:
    """Run ``fn`` on every rank of a new world on this machine and return what the ranks returned.

    The default process group is ready when ``fn`` is called. It is called as ``fn(*args)``; a
    function in the tutorials' shape, whose first parameter is named ``rank`` (and whose second is
    named ``size`` or ``world_size``), gets these numbers first::

        def work():                       # launch(work)
        def work(batch):                  # launch(work, args=(32,))
        def work(rank, size):             # launch(work)
        def work(rank, world_size, lr):   # launch(work, args=(0.1,))

    The world is reachable from this machine alone, and every process and file of it is gone when
    this returns or raises. Values travel by pickle; tensors of an accelerator arrive on the CPU.
    Processes that ``fn`` itself starts are its own to end: a rank that is stopped or killed takes
    none of them along.

    Args:
        fn: under fork any function; under forkserver and spawn one that can be imported.
        args: the same for every rank.
        world_size: how many ranks, at least 1.
        backend: ``gloo``, ``nccl``, ``mpi``, ``cpu:gloo,cuda:nccl``, or one registered with torch.
        timeout: seconds until the world is judged to hang, at most 1e9.
        device: ``cpu`` or ``cuda``.
        start_method: ``auto`` takes the fastest that is safe in this process: fork while it has
            only the threads of torch's import, else a forkserver that loads torch once.

    Returns:
        The ranks' return values, in order.

    Raises:
        UsageError: the world can't be started as asked; no rank ran.
        WorldError: a rank raised, died or never finished. Names the rank at fault and carries its
            traceback and every rank's outcome.
        KeyboardInterrupt: after Ctrl-C, when all ranks are gone.
        WorldInterrupted: after another signal whose handler returned.
    """
    world = WorldSpec(world_size, backend, device, timeout, start_method)
    check_world(world)
    shape = _calling_shape(fn, args)
    report = _run(world, fn, args, shape)
    if report.verdict is not None:
        raise _error(report)
    return report.values


def _run(
    world: WorldSpec, fn: Callable[..., Any], args: tuple[Any, ...], shape: int
) -> WorldReport:
    from distdemo.backends import prepared
    from distdemo.launcher.local import run_world

    return run_world(prepared(world), _call, (fn, args, shape))


def _call(rank: Rank, fn: Callable[..., Any], args: tuple[Any, ...], shape: int) -> Any:  # noqa: ANN401 - the user's value
    """On each rank: call the user's function, with as many of rank and size as it takes."""
    return fn(*(rank.rank, rank.world_size)[:shape], *args)


def _error(report: WorldReport) -> WorldError:
    return WorldError(report) if report.interrupted_by is None else WorldInterrupted(report)


def _calling_shape(fn: Callable[..., Any], args: tuple[Any, ...]) -> int:
    """How many of (rank, world size) the function takes before ``args``: 0, 1 or 2.

    Raises:
        UsageError: its parameters and ``args`` don't fit together.
    """
    if not callable(fn):
        raise UsageError(
            f"{fn!r} can't be called.",
            "launch runs a function on every rank.",
            "Give the function itself, launch(work), not what it returns, launch(work()).",
        )
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # some builtins have none
        return 0
    shape = leading(list(signature.parameters))
    try:
        signature.bind(*(0, 0)[:shape], *args)
    except TypeError as error:
        name = getattr(fn, "__name__", repr(fn))
        raise UsageError(
            f"{name}{signature} can't be called with args={args!r}.",
            f"{error}.".capitalize(),
            "It is called as fn(*args), or fn(rank, size, *args) if its first parameters are so "
            "named.",
        ) from error
    return shape
