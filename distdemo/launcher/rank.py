"""Main function of a rank's process: join the group, run the function, report, and exit.

If the launcher exits, however it does, the rank exits too.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from multiprocessing import util
from typing import TYPE_CHECKING, Any, NoReturn

from distdemo.errors import UsageError
from distdemo.launcher import failures, gpu, pmi, stacks
from distdemo.launcher.messages import (
    Completed,
    Failed,
    Identity,
    Message,
    PhaseReached,
    Sender,
    ValueSent,
    dumps,
)
from distdemo.launcher.process_tree import die_with_parent
from distdemo.launcher.records import Died
from distdemo.launcher.rendezvous import AgentStore, set_interface
from distdemo.launcher.torch_import import load_torch

# Under spawn and forkserver the child imports this module first, so load torch quietly here. A
# forkserver preloads it once for all ranks; under fork it is loaded already.
load_torch()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch._C._distributed_c10d import PrefixStore, Store  # noqa: E402 - torch.distributed's own, typed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from distdemo.launcher.records import WorldSpec
    from distdemo.launcher.rendezvous import LocalRanks, Rendezvous

Work = tuple[Callable[..., Any], tuple[Any, ...]] | bytes
"""A function and its arguments, or the pickle of them."""

MAX_TIMEOUT_S = 2e6  # a TCPStore counts milliseconds in 31 bits


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


class Rank:
    """Handle that a rank's function receives: its numbers, devices and reporting calls.

    Attributes:
        rank: Number of this rank.
        world_size: Number of ranks.
        local_rank: Number of this rank among those of its host.
        local_size: Number of ranks on its host, or 1 if unknown.
        backend: Backend of the default group.
        rank_per_gpu: True if the backend takes one rank per GPU; the group is bound to that GPU.
        device: Device of this rank's tensors, ``cpu`` or ``cuda:0``.
        startup_seconds: Seconds from process start until it joined the group.
    """

    def __init__(self, assignment: Assignment, sender: Sender) -> None:
        world, local = assignment.world, assignment.local_ranks
        self.rank = assignment.rank
        self.world_size = world.world_size
        self.local_rank = local.local_rank + assignment.rank - local.ranks.start
        self.local_size = local.local_size
        self.backend = world.backend
        self.rank_per_gpu = world.rank_per_gpu
        self.device = "cpu"
        if world.device != "cpu":
            self.device = gpu.device_of(world.device, self.local_rank, torch.cuda.device_count())
        self.startup_seconds = 0.0
        # The launcher enforces the deadline; the backend's timeout is only a fallback.
        self._timeout = timedelta(seconds=min(2 * world.deadline + 60, MAX_TIMEOUT_S))
        self._sender = sender
        self._next_step = 0
        self._store: Store | None = None

    def report_phase(self, phase: str) -> None:
        """Report a phase to the launcher, so that a timeout can name the ranks behind it."""
        self._sender.send(PhaseReached(self._next_step, phase, time.monotonic()))
        self._next_step += 1

    def send(self, value: Any) -> None:
        """Send a value to the launcher while this rank runs; block while the pipe is full.

        Values of one rank arrive in order. Tensors of an accelerator arrive on the CPU.

        Raises:
            Exception: The value can't be pickled; nothing was sent.
        """
        self._sender.send(ValueSent(dumps(value)))

    def exit_if_forked(self, error: BaseException | None = None) -> None:
        """Exit, as Python does after this exception, if the rank has forked this process."""
        if self._sender.forked:
            _exit_with_status(error)

    def join(self, rendezvous: Rendezvous) -> None:
        """Join the world's default group. Collective."""
        store = rendezvous.store(self.world_size, self._timeout, self.send)
        self._store = PrefixStore(rendezvous.prefix, store) if rendezvous.prefix else store
        dist.init_process_group(
            self.backend,
            store=self._store,
            rank=self.rank,
            world_size=self.world_size,
            timeout=self._timeout,
            device_id=torch.device(self.device)
            if self.rank_per_gpu and self.device != "cpu"
            else None,
        )
        self.report_phase("joined the group")

    def announce(self, rendezvous: Rendezvous) -> None:
        """Set the variables with which the program creates the group itself. Collective."""
        if isinstance(rendezvous, AgentStore):
            rendezvous.announce(self.rank, self.world_size, self.local_rank)
            return
        store = self._store = rendezvous.store(self.world_size, self._timeout, self.send)
        self.set_variables()
        AgentStore(store.port, store.host).offer()  # type: ignore[attr-defined]  # a TCPStore

    def set_variables(self) -> None:
        """Set this rank's numbers in the environment, as torchrun does."""
        numbers = {
            "RANK": self.rank,
            "LOCAL_RANK": self.local_rank,
            "WORLD_SIZE": self.world_size,
            "LOCAL_WORLD_SIZE": self.local_size,
        }
        os.environ.update({name: str(number) for name, number in numbers.items()})

    def barrier(self, name: str, among: int | None = None) -> None:
        """Return once ``among`` ranks have called this with the same name. Collective.

        The barrier uses the store, so it works while the group is busy.

        Args:
            name: Name that was not used before, different for each subgroup.
            among: Number of ranks that take part [default: the whole world].
        """
        store = self._shared_store()
        wanted = self.world_size if among is None else among
        if store.add(f"barrier/{name}/arrived", 1) == wanted:
            store.set(f"barrier/{name}/open", "")
        store.wait([f"barrier/{name}/open"])

    def count(self, name: str, add: int = 0) -> int:
        """Add to a shared counter atomically and return its new value.

        Args:
            name: Name of the counter, which starts at 0.
            add: Number to add; 0 only reads.
        """
        return int(self._shared_store().add(f"count/{name}", add))

    def store(self, prefix: str) -> Store:
        """Return the store that all ranks share, with its own key prefix.

        Args:
            prefix: Prefix of the keys, the same on every rank that uses them.
        """
        return PrefixStore(prefix, self._shared_store())

    def _shared_store(self) -> Store:
        if self._store is None:
            raise RuntimeError("a rank must join the group before it uses the store")
        return self._store

    def synchronize(self) -> None:
        """Wait until this rank's device has finished its queued work."""
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)


# ------------------------------------------------------------------------------------- rank main


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
        message: Message = Completed(_pickled(_work(assignment, sender, started)), time.monotonic())
    except BaseException as raised:  # noqa: BLE001 - every exception is reported to the launcher
        error, message = raised, _final_message(assignment.rank, raised)
    if sender.lost:
        _exit_with_status(error)
    sender.send(message)
    if isinstance(message, Failed) and not isinstance(error, SystemExit):
        _flush()
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the user's function has returned
    _flush()
    if exit_pipe.is_open():
        wait_for_close(assignment.exit_pipe.fileno())
    assignment.local_ranks.rendezvous.leave()
    if assignment.world.rank_per_gpu:
        gpu.destroy_group()


def _work(assignment: Assignment, sender: Sender, started: float) -> Any:
    """Join the group and call the function."""
    world, local = assignment.world, assignment.local_ranks
    torch.set_num_threads(1)  # N ranks share the cores; an inherited thread pool is never used
    if local.interface is not None:
        set_interface(local.interface)
    if world.lazy is not None:
        os.environ["TORCH_GLOO_LAZY_INIT"] = str(int(world.lazy))
    if assignment.mpi is not None:
        pmi.set_environment(*assignment.mpi)
    rank = Rank(assignment, sender)
    rank.report_phase("started")
    if world.provider:
        import_module(world.provider)
    work = assignment.work
    if isinstance(work, bytes) or world.user_program is not None:
        _seed()
    target, args = _unpickled(work) if isinstance(work, bytes) else work
    gpu.set_device(rank.device)
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
    torch.default_generator.seed()
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


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
    code = _exit_code(error)
    if not code:
        return Completed(dumps(None), at)
    text = "" if isinstance(error.code, int) else failures.text_of(error.code)
    return Failed(Died(rank=rank, at=at, exit_code=code, message=text))


def _exit_code(error: SystemExit) -> int:
    """Return the exit code as the system sees it: modulo 256, and 1 for a message."""
    code = error.code
    return code & 0xFF if isinstance(code, int) else int(code is not None)


def _exit_with_status(error: BaseException | None) -> NoReturn:
    """Exit as Python does after this exception, in a process that has no pipe to report it."""
    status, text = 0, ""
    if isinstance(error, SystemExit):
        status = _exit_code(error)
        if error.code is not None and not isinstance(error.code, int):
            text = f"{failures.text_of(error.code)}\n"
    elif error is not None:
        status, text = 1, failures.raised(0, error).traceback
    with suppress(Exception):  # closed, or of the program's own kind
        sys.stderr.write(text)
    util._run_finalizers(0)  # type: ignore[attr-defined]  # noqa: SLF001 - as multiprocessing does at the end of a rank
    _flush()
    os._exit(status)


def _flush() -> None:
    """Flush stdout and stderr: the process may exit without doing so."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or its reader has exited
            stream.flush()


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
    if not die_with_parent():
        threading.Thread(target=_exit_with_launcher, args=(assignment,), daemon=True).start()
    else:
        if "multiprocessing.forkserver" in sys.modules:
            _free_forkserver()
        closed = select.poll()  # select.select takes no descriptor beyond 1023
        closed.register(assignment.exit_pipe.fileno(), select.POLLIN | select.POLLHUP)
        if closed.poll(0):  # the launcher exited before we asked the kernel to watch it
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


def _exit_with_launcher(assignment: Assignment) -> None:
    """Watch the launcher from a thread, where the kernel can't."""
    wait_for_close(assignment.exit_pipe.fileno())
    directory = assignment.local_ranks.rendezvous.directory
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
    time.sleep(0.5)  # for an orderly exit, if the launcher released the ranks
    os._exit(1)


def wait_for_close(fd: int) -> None:
    """Wait until the launcher has closed its end of the pipe or exited."""
    while os.read(fd, 1):
        pass


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
