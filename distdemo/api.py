"""``distdemo.launch``: run a function on every rank of a new world on this machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from distdemo.errors import DistdemoError, UnavailableError, UsageError
from distdemo.launcher.arguments import bind
from distdemo.launcher.limits import check_machine
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.launcher.start_method import METHODS
from distdemo.launcher.torch_import import load_torch

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

T = TypeVar("T")
STALL_S = 60.0
MAX_TIMEOUT_S = 1e9  # some 30 years: far below what overflows in torch's clocks


class WorldError(DistdemoError):
    """The failure of a world of ranks.

    Attributes:
        rank: Rank at fault, or None if there is no single one (a deadlock of all ranks).
        traceback: Python traceback of that rank, or empty.
        report: Outcomes of all ranks.
    """

    def __init__(self, report: WorldReport) -> None:
        verdict = report.verdict
        if verdict is None:
            raise ValueError("WorldError needs the report of a failed world")
        super().__init__(verdict.what, verdict.why, verdict.hint)
        self.report = report
        self.rank = verdict.ranks[0] if verdict.ranks else None
        self.traceback = verdict.traceback

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.report,)

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n\n{self.traceback}" if self.traceback else text


class WorldInterrupted(WorldError):  # named like KeyboardInterrupt
    """A signal that stopped this process while ranks ran. All ranks have exited."""


def launch(
    fn: Callable[..., T],
    args: tuple[Any, ...] = (),
    world_size: int = 4,
    backend: str = "gloo",
    timeout: float | None = None,
    *,
    stall: float | None = STALL_S,
    device: str = "cpu",
    start_method: str = "auto",
    sanitize: bool = True,
    strict: bool = False,
    check_replicas: int | None = None,
    excluded: Sequence[str] = (),
) -> list[T]:
    """Run ``fn`` on every rank of a new world on this machine and return the ranks' values.

    The default process group is ready when ``fn`` is called, and ``RANK``, ``LOCAL_RANK``,
    ``WORLD_SIZE`` and ``LOCAL_WORLD_SIZE`` are set. It is called as ``fn(*args)``. If its first
    parameter is named ``rank`` (and its second ``size`` or ``world_size``), as in torch's
    tutorials, these numbers are passed first::

        def work():                       # launch(work)
        def work(batch):                  # launch(work, args=(32,))
        def work(rank, size):             # launch(work)
        def work(rank, world_size, lr):   # launch(work, args=(0.1,))

    The world can't be reached from other machines, and all its processes and files are removed
    before this returns or raises. Values are pickled; tensors of an accelerator arrive on the CPU.
    ``fn`` must stop the processes that it starts itself: stopping or killing a rank doesn't.

    Args:
        fn: Function to run. Forkserver and spawn import it, or carry it by value if cloudpickle is
            installed: a function of a notebook's cell, a closure, a lambda.
        args: Arguments of the function, the same for every rank.
        world_size: Number of ranks, at least 1.
        backend: ``gloo``, ``nccl``, ``mpi``, ``cpu:gloo,cuda:nccl``, or one registered with torch.
        timeout: Seconds until the world is stopped, at most 1e9; None for no limit.
        stall: Seconds in which no rank uses the processor, until the world is stopped as hanging;
            None for no limit.
        device: ``cpu`` or ``cuda``.
        start_method: ``fork``, ``forkserver``, ``spawn``, or ``auto`` for the fastest that is safe
            in this process: fork while it has only the threads of torch's import, otherwise a
            forkserver that loads torch once.
        sanitize: True to compare the ranks' calls of torch.distributed, as ``distdemo run`` does. A
            mismatch ends the world, and the error names the rank and line. What is only suspicious
            is a ``UserWarning``, and so are calls that were not compared.
        strict: True if these warnings are failures.
        check_replicas: Number of steps between comparisons of parameters, in which replicas that
            differ are a failure; None to compare a few steps, and only warn.
        excluded: Patterns of the names of parameters that aren't compared, such as ``experts.*``.

    Returns:
        The ranks' return values, in order.

    Raises:
        UsageError: The world can't be started; no rank ran.
        WorldError: A rank raised, died or never finished. The error names the rank at fault and
            has its traceback and every rank's outcome.
        KeyboardInterrupt: Ctrl-C, once all ranks have exited.
        WorldInterrupted: Another signal, whose handler returned.
    """
    deadline = MAX_TIMEOUT_S if timeout is None else timeout
    world = WorldSpec(world_size, backend, device, deadline, start_method, stall=stall, silent=True)
    check_world(world)
    asked = {"strict": strict, "check_replicas": check_replicas, "excluded": excluded}
    for name, value in asked.items():
        if value and not sanitize:
            raise UsageError(
                f"{name} can't be used with sanitize=False.",
                "The sanitizer compares the ranks.",
                "Use one of them.",
            )
    _check_call(fn, args)
    from distdemo.backends import prepared

    work = prepared(world), _call, (fn, args)
    if sanitize:
        from distdemo.calls.inspector import run_noted

        report = run_noted(*work, strict=strict, check_replicas=check_replicas, excluded=excluded)
    else:
        from distdemo.launcher.local import run_world

        report = run_world(*work)
    if report.verdict is not None:
        raise WorldError(report) if report.interrupted_by is None else WorldInterrupted(report)
    return report.values


def _call(rank: Rank, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call the user's function on a rank, with rank and world size if it takes them."""
    rank.set_variables()
    return bind(fn, rank.rank, rank.world_size, args)()


def _check_call(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Raise `UsageError` if the function can't be called with ``args``."""
    if not callable(fn):
        raise UsageError(
            f"{fn!r} can't be called.",
            "launch runs a function on every rank.",
            "Pass the function itself, launch(work), not its result, launch(work()).",
        )
    bind(fn, 0, 1, args)


# -------------------------------------------------------------------------------------- validation


def check_world(world: WorldSpec) -> None:
    """Validate the settings of a world.

    Raises:
        UsageError: A setting is invalid, or this torch or machine doesn't support it.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(
            "launch was called while a rank was importing your script.",
            "Each rank imports the script that launched it, which must not launch a world again.",
            "Put the call under `if __name__ == '__main__':`.",
        )
    size, timeout, stall = world.world_size, world.deadline, world.stall
    methods = f"one of {', '.join(METHODS)}"
    seconds = f"seconds, more than 0 and at most {MAX_TIMEOUT_S:g}"
    settings = {  # name: value, is it valid, valid values
        "world_size": (size, type(size) is int and size >= 1, "a whole number, at least 1"),
        "timeout": (timeout, _is_limit(timeout), seconds),
        "stall": (stall, stall is None or _is_limit(stall), f"{seconds}, or None"),
        "start_method": (world.start_method, world.start_method in METHODS, methods),
        "device": (world.device, world.device in ("cpu", "cuda"), "'cpu' or 'cuda'"),
        "backend": (world.backend, isinstance(world.backend, str), "a name such as 'gloo'"),
    }
    for name, (value, valid, choices) in settings.items():
        if not valid:
            raise UsageError(f"{name} is {value!r}.", f"It must be {choices}.")
    load_torch()
    _check_backend(world)
    check_machine(world)


def _is_limit(seconds: object) -> bool:
    """Return True if this is a number of seconds that a clock can have; NaN isn't one."""
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        return False
    return 0 < seconds <= MAX_TIMEOUT_S


def _check_backend(world: WorldSpec) -> None:
    """Raise `UsageError` for a backend that isn't available, or too few GPUs."""
    import torch.distributed as dist

    from distdemo.backends import REGISTRY, backend_names, count_gpus

    names = backend_names(world.backend)
    known = [name for name in dist.Backend.backend_list if name != dist.Backend.UNDEFINED]
    for name in names:
        ours = REGISTRY.get(name)
        what = f"The backend {name!r} is not available."
        if name.upper() in dist.Backend._plugins:  # noqa: SLF001 - registered with torch
            continue
        if ours is None and name not in known:
            raise UsageError(what, f"torch.distributed has {', '.join(known)}.", "Use 'gloo'.")
        reason = None if ours is None else ours.missing()
        if ours is not None and reason is not None:
            raise UnavailableError(what, reason, ours.how_to_install or "Use 'gloo'.")
    per_gpu = any(name in REGISTRY and REGISTRY[name].rank_per_gpu for name in names)
    if world.device == "cuda" or per_gpu:
        needed = world.world_size if per_gpu else 1
        gpus = count_gpus()
        if gpus < needed:
            raise UnavailableError(
                f"backend={world.backend!r}, device={world.device!r}: {needed} GPUs are needed.",
                f"torch sees {gpus} on this machine.",
                "Try device='cpu' with backend='gloo', or fewer ranks.",
            )
