"""Main function of a rank's process: join the group, run the function, report, and exit.

If the launcher exits, however it does, the rank exits too.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from distdemo.errors import UsageError
from distdemo.launcher import failures, pmi, stacks
from distdemo.launcher.messages import Completed, Failed, Identity, Message, Sender, dumps
from distdemo.launcher.rank import Rank, exit_as_python, exit_status, flush, set_device
from distdemo.launcher.records import Died
from distdemo.launcher.rendezvous import set_interface, set_recorder
from distdemo.launcher.torch_import import seed_numpy
from distdemo.platform import system

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from distdemo.launcher.records import WorldSpec
    from distdemo.launcher.rendezvous import LocalRanks

Work = tuple[Callable[..., Any], tuple[Any, ...]] | bytes
"""A function and its arguments, or the pickle of them."""

DESTROY_TIMEOUT_S = 5.0  # for NCCL to close its connections


@dataclass(frozen=True, slots=True)
class Assignment:
    """Start-up parameters of one rank.

    Attributes:
        local_ranks: Ranks of this process, and their rendezvous.
        work: Function and arguments, called as ``target(rank, *args)``; pickled unless the rank is
            forked.
        result_pipe: Write end of the pipe to the launcher.
        exit_pipe: Read end of a pipe that the launcher closes when all ranks may exit.
        output: Write end for stdout and stderr, if they are captured.
        stdin: Launcher's standard input, for the one rank of a user program that reads it.
        mpi: Environment and PMI socket, in a world over MPI.
        inherited: Descriptors of the launcher that a forked rank must close.
    """

    rank: int
    world: WorldSpec
    local_ranks: LocalRanks
    work: Work
    result_pipe: Connection
    exit_pipe: Connection
    output: Connection | None
    stdin: Connection | None
    mpi: tuple[dict[str, str], Connection] | None
    inherited: Sequence[int]


def rank_main(assignment: Assignment) -> None:
    """Run a rank; return when the process should exit."""
    started = time.monotonic()
    gc.freeze()  # collecting the forked objects would copy their pages
    _detach(assignment)
    sender = Sender(assignment.result_pipe.fileno())
    exit_pipe = Identity(assignment.exit_pipe.fileno())
    stacks.write_stacks_to(assignment.result_pipe.fileno())
    os.register_at_fork(after_in_child=sender.close)  # only this process reports for the rank
    error: BaseException | None = None
    try:
        message: Message = Completed(
            _pickled(_work(assignment, sender, exit_pipe, started)), time.monotonic()
        )
    except BaseException as raised:  # every exception is reported to the launcher
        error = raised
        message = _final_message(assignment.rank, raised)
    if sender.lost:
        exit_as_python(error)
    sender.send(message)
    if isinstance(message, Failed) and not isinstance(error, SystemExit):
        flush()
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the user's function has returned
    flush()
    exit_pipe.wait_for_close()
    assignment.local_ranks.rendezvous.leave()
    if assignment.world.rank_per_gpu:
        destroy_group()


def _work(assignment: Assignment, sender: Sender, exit_pipe: Identity, started: float) -> Any:
    """Join the group and call the function."""
    import torch

    world = assignment.world
    local = assignment.local_ranks
    torch.set_num_threads(1)  # N ranks share the cores; an inherited thread pool is never used
    if local.interface is not None:
        set_interface(local.interface)
    if world.lazy is not None:
        os.environ["TORCH_GLOO_LAZY_INIT"] = str(int(world.connects_lazily))
    if world.user_program is not None:
        set_recorder(world.user_program.recorded_calls)
    if assignment.mpi is not None:
        pmi.set_environment(*assignment.mpi)
    rank = Rank(assignment.rank, world, local, sender, exit_pipe)
    rank.report_phase("started")
    if world.provider:
        import_module(world.provider)
    work = assignment.work
    if isinstance(work, bytes) or world.user_program is not None:
        _seed()
    target, args = _unpickled(work) if isinstance(work, bytes) else work
    set_device(rank.device)
    _prevent_reducer_deletion()
    if world.user_program is not None and not world.user_program.group:
        rank.announce(local.rendezvous)
    else:
        rank.join(local.rendezvous)
    rank.startup_seconds = time.monotonic() - started
    return target(rank, *args)


def _seed() -> None:
    """Reseed torch's and NumPy's global generators, whose state forked ranks would share.

    ``random`` does so itself. A function that a program passes to ``launch`` keeps the state.
    """
    import torch

    torch.default_generator.seed()
    seed_numpy()


def _unpickled(work: bytes) -> Any:
    """Unpickle the function and its arguments; raise `UsageError` if that fails."""
    try:
        return pickle.loads(work)  # noqa: S301 - from our own parent process
    except Exception as error:
        raise UsageError(
            "The function or its arguments can't be loaded in a new process.",
            f"{type(error).__name__}: {error}.",
            "Define them where an import of your script finds them, above "
            "`if __name__ == '__main__':`.",
        ) from error


def _prevent_reducer_deletion() -> None:
    """Keep the reducers of DDP models until the process exits.

    A reducer that is freed after ``destroy_process_group`` frees the group and joins gloo's thread
    while holding the GIL, for which that thread may be waiting (torch 2.13).
    """
    import torch.distributed as dist

    make: Any = vars(dist)["Reducer"]
    kept = []

    def reducer(*args: Any, **named: Any) -> Any:
        kept.append(make(*args, **named))
        return kept[-1]

    vars(dist)["Reducer"] = reducer  # DDP looks it up by this name


def _pickled(value: Any) -> bytes:
    """Pickle the return value; raise `TypeError` if that fails."""
    try:
        return dumps(value)
    except Exception as error:
        raise TypeError(f"the value that it returned can't be sent back: {error}") from error


def _final_message(rank: int, error: BaseException) -> Completed | Failed:
    """Return the message for a function that raised; ``sys.exit(0)`` counts as a return."""
    at = time.monotonic()
    if not isinstance(error, SystemExit):
        return Failed(failures.raised(rank, error))
    code, text = exit_status(error)
    if code == 0:
        return Completed(dumps(None), at)
    return Failed(Died(rank=rank, at=at, exit_code=code, message=text))


def destroy_group() -> None:
    """Destroy the default group, or exit the process if NCCL takes too long.

    Nothing is lost: every rank has reported its result.
    """
    import torch.distributed as dist

    if not dist.is_initialized():
        return
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - no Path is needed
        # A watchdog in C needs no GIL, which NCCL may hold when it hangs.
        faulthandler.dump_traceback_later(DESTROY_TIMEOUT_S, exit=True, file=nowhere)
        dist.destroy_process_group()
        faulthandler.cancel_dump_traceback_later()


# ------------------------------------------------------------------------------- process set-up


def _detach(assignment: Assignment) -> None:
    """Drop the launcher's descriptors, handlers and output, and arrange to die with it."""
    for fd in assignment.inherited:
        os.close(fd)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the launcher, which stops us
    if assignment.output is not None:
        os.dup2(assignment.output.fileno(), 1)
        os.dup2(assignment.output.fileno(), 2)
    system.die_with_parent()
    if "multiprocessing.forkserver" in sys.modules:
        _free_forkserver()
    launcher = select.poll()  # Connection.poll would load pages that forked ranks share
    launcher.register(assignment.exit_pipe, select.POLLIN)
    if launcher.poll(0):  # the launcher exited before we asked the kernel to watch it
        os._exit(1)
    if assignment.world.user_program is not None:
        _lead_session(assignment)


def _free_forkserver() -> None:
    """Close the write end of the forkserver's lifeline, which every rank inherits.

    The forkserver exits when every copy of that end is closed. If ranks kept theirs open, the
    forkserver and the ranks would outlive a killed launcher.
    """
    server = getattr(sys.modules["multiprocessing.forkserver"], "_forkserver", None)
    lifeline = getattr(server, "_forkserver_alive_fd", None)
    if lifeline is not None and getattr(server, "_forkserver_pid", None) is None:
        os.close(lifeline)
        server._forkserver_alive_fd = None  # type: ignore[union-attr]  # noqa: SLF001 - there is no public way


def _lead_session(assignment: Assignment) -> None:
    """Set up a user program's session, standard input, line-buffered output and Ctrl-C."""
    with suppress(OSError):  # already a session leader
        os.setsid()
    if assignment.stdin is None:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        if null:
            os.close(null)
    else:
        os.dup2(assignment.stdin.fileno(), 0)
        assignment.stdin.close()
    # Open new streams: those that a forked rank inherits may have a different encoding, unwritten
    # data in their buffers, or other descriptors.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    program = assignment.world.user_program
    if program is None or program.terminal != assignment.rank:
        for name, fd in (("stdout", 1), ("stderr", 2)):
            stream = open(  # noqa: SIM115
                fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
            )
            setattr(sys, name, stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
