"""``distdemo.launch``: run a function of your own on every rank of a new world on this machine."""

from __future__ import annotations

import inspect
import multiprocessing
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from distdemo.errors import UsageError, WorldError, WorldInterrupted
from distdemo.launcher.limits import check_machine
from distdemo.launcher.records import WorldSpec
from distdemo.launcher.start_method import METHODS
from distdemo.launcher.torch_import import load_torch

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

SANITIZER = "distdemo.sanitizer.inspector"
"""Loaded by name, as the launcher knows no feature."""
LONGEST = 1e9  # seconds, some 30 years: far below what overflows in torch's clocks


def launch(  # noqa: PLR0913 - each is one setting of a world, by keyword
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    world_size: int = 4,
    backend: str = "gloo",
    timeout: float = 30.0,
    *,
    device: str = "cpu",
    start_method: str = "auto",
    sanitize: bool = False,
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
        sanitize: compare the ranks' calls of torch.distributed, as ``distdemo run`` does: where
            they don't fit together the world ends, and the error says which rank and line it is.

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
    from distdemo.backends import prepared
    from distdemo.launcher.local import run_world

    run = import_module(SANITIZER).run_noted if sanitize else run_world
    report = run(prepared(world), _call, (fn, args, shape))
    if report.verdict is not None:
        raise WorldError(report) if report.interrupted_by is None else WorldInterrupted(report)
    return report.values


def _call(rank: Rank, fn: Callable[..., Any], args: tuple[Any, ...], shape: int) -> Any:  # noqa: ANN401 - the user's value
    """On each rank: call the user's function, with as many of rank and size as it takes."""
    return fn(*(rank.rank, rank.world_size)[:shape], *args)


def leading(names: Sequence[str]) -> int:
    """How many of (rank, world size) a function with these parameters takes first: 0, 1 or 2."""
    if list(names[:1]) != ["rank"]:
        return 0
    return 2 if names[1:2] and names[1] in ("size", "world_size") else 1


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


# ----------------------------------------------------------------------------- what can be a world


def check_world(world: WorldSpec) -> None:
    """Refuse what can't be a world.

    Raises:
        UsageError: a setting is wrong, or this torch or machine can't do it.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(
            "launch was called while a rank was importing your script.",
            "Each rank imports the script that launched it, and must not launch a world again.",
            "Put the call under `if __name__ == '__main__':`.",
        )
    size, timeout = world.world_size, world.deadline
    number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    names = f"one of {', '.join(METHODS)}"
    seconds = f"seconds, more than 0 and at most {LONGEST:g}"
    settings = {  # its value, whether that is right, and what it has to be
        "world_size": (size, type(size) is int and size >= 1, "a whole number, at least 1"),
        "timeout": (timeout, number and 0 < timeout <= LONGEST, seconds),  # NaN is not
        "start_method": (world.start_method, world.start_method in METHODS, names),
        "device": (world.device, world.device in ("cpu", "cuda"), "'cpu' or 'cuda'"),
        "backend": (world.backend, isinstance(world.backend, str), "a name such as 'gloo'"),
    }
    for name, (value, right, what) in settings.items():
        if not right:
            raise UsageError(f"{name} is {value!r}.", f"It has to be {what}.", f"Give {what}.")
    load_torch()
    _check_backend(world)
    check_machine(world)


def _check_backend(world: WorldSpec) -> None:
    """Refuse a backend that torch lacks and nobody gives it, and GPUs that are not there."""
    import torch.distributed as dist

    from distdemo.backends import REGISTRY, count_gpus
    from distdemo.backends.starting import named

    known = set(dist.Backend.backend_list) - {"undefined"}
    registered = getattr(dist.Backend, "_plugins", {})
    here = {
        name
        for name in known
        if name.upper() in registered or getattr(dist, f"is_{name}_available", lambda: False)()
    }
    names = named(world.backend)
    for name in names:
        ours = REGISTRY.get(name)
        if name in here:
            continue
        why = f"torch.distributed knows {', '.join(sorted(known))}."
        if name in known:
            why = "This torch was built without it."
            if ours is not None and ours.provided_by():  # torch gets it from us
                reason = ours.missing()
                if reason is None:
                    continue
                why = f"{reason} {ours.get}"
        hint = f"Try one of those that it has: {', '.join(sorted(here))}."
        raise UsageError(f"The backend {name!r} is not here.", why, hint)
    greedy = [name for name in names if name in REGISTRY and REGISTRY[name].rank_per_gpu]
    if world.device == "cuda" or greedy:
        needed, gpus = world.world_size if greedy and world.device == "cuda" else 1, count_gpus()
        if gpus < needed:
            asked = "device='cuda'" if world.device == "cuda" else f"backend={greedy[0]!r}"
            each = f", and {greedy[0]} takes one rank a GPU" if greedy else ""
            raise UsageError(
                f"{asked} with {world.world_size} ranks needs {needed} or more GPUs.",
                f"torch sees {gpus} on this machine{each}.",
                "Try device='cpu' with backend='gloo', or fewer ranks.",
            )
