"""The rank's side: come to life, join the group, run the function, report, and leave with the rest.

Runs in the child process. Its parent may vanish at any moment; it then ends too.
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
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from distdemo.launcher import failures, gpu, pmi, stacks
from distdemo.launcher.messages import (
    Completed,
    Failed,
    Identity,
    Message,
    Reached,
    Sender,
    Told,
    dumps,
)
from distdemo.launcher.process_tree import die_with_parent
from distdemo.launcher.records import Died
from distdemo.launcher.rendezvous import AgentStore, take_interface
from distdemo.launcher.torch_import import load_torch

# Under spawn and forkserver this module is what the child imports first, so torch is loaded here,
# quietly; a forkserver preloads it once for all ranks. Under fork it is there already.
load_torch()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch._C._distributed_c10d import PrefixStore, Store  # noqa: E402 - torch.distributed's own, typed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from distdemo.launcher.records import WorldSpec
    from distdemo.launcher.rendezvous import LocalRanks, Rendezvous

Work = tuple[Callable[..., Any], tuple[Any, ...]] | bytes
"""A function and its arguments: themselves, or pickled."""

LONGEST_WAIT = 2e6  # seconds; a TCPStore counts in milliseconds, of 31 bits


@dataclass(frozen=True, slots=True)
class Assignment:
    """All that a rank needs to know.

    Attributes:
        here: which ranks are started beside this one, and how all meet.
        work: the function and its arguments, called as ``target(rank, *args)``: themselves in a
            forked rank, else pickled.
        way_back: the write end of the rank's pipe to the launcher.
        gate: the read end of a pipe that the launcher closes when all ranks may leave.
        output: the write end for stdout and stderr, if they are captured.
        stdin: the launcher's standard input, for the one rank of a user program that reads it.
        mpi: the environment and the socket by which MPI finds the others, if this world has it.
        inherited: descriptors of the launcher that a forked rank has to close.
    """

    rank: int
    world: WorldSpec
    here: LocalRanks
    work: Work
    way_back: Connection
    gate: Connection
    output: Connection | None
    stdin: Connection | None
    mpi: tuple[dict[str, str], Connection] | None
    inherited: Sequence[int]


class Rank:
    """One rank of a world, as the function that it runs sees it.

    Attributes:
        rank: this rank's number.
        world_size: how many there are.
        local_rank: its number among the ranks of its host.
        local_size: how many those are, as far as is known.
        backend: the backend of the default group.
        rank_per_gpu: it takes one rank a GPU, so the group is bound to this rank's.
        device: where this rank's tensors live, ``cpu`` or ``cuda:0``.
        startup_seconds: from its birth until it had joined the group.
    """

    def __init__(self, assignment: Assignment, sender: Sender) -> None:
        world, here = assignment.world, assignment.here
        self.rank = assignment.rank
        self.world_size = world.world_size
        self.local_rank = here.local_rank + assignment.rank - here.ranks.start
        self.local_size = here.local_size
        self.backend = world.backend
        self.rank_per_gpu = world.rank_per_gpu
        self.device = "cpu"
        if world.device != "cpu":
            self.device = gpu.device_of(world.device, self.local_rank, torch.cuda.device_count())
        self.startup_seconds = 0.0
        # The launcher judges at the deadline; the backend's own timeout is only a second net.
        self._patience = timedelta(seconds=min(2 * world.deadline + 60, LONGEST_WAIT))
        self._sender = sender
        self._steps = 0
        self._store: Store | None = None

    def reach(self, phase: str) -> None:
        """Tell the launcher that this rank got so far, so that a timeout can say who did not."""
        self._sender.send(Reached(self._steps, phase, time.monotonic()))
        self._steps += 1

    def tell(self, value: Any) -> None:  # noqa: ANN401 - anything that pickles
        """Send a value to the launcher while this rank runs, waiting while the pipe is full.

        Values of one rank arrive in order. Tensors of an accelerator arrive on the CPU.

        Raises:
            Exception: whatever pickling the value raises; nothing was sent then.
        """
        self._sender.send(Told(dumps(value)))

    def join(self, rendezvous: Rendezvous) -> None:
        """Collective: become a member of the world's default group."""
        store = rendezvous.store(self, self._patience)
        self._store = PrefixStore(rendezvous.prefix, store) if rendezvous.prefix else store
        dist.init_process_group(
            self.backend,
            store=self._store,
            rank=self.rank,
            world_size=self.world_size,
            timeout=self._patience,
            device_id=torch.device(self.device)
            if self.rank_per_gpu and self.device != "cpu"
            else None,
        )
        self.reach("joined the group")

    def announce(self, rendezvous: Rendezvous) -> None:
        """Collective: let the program in this process make the group itself."""
        if isinstance(rendezvous, AgentStore):
            rendezvous.announce(self)
            return
        store = self._store = rendezvous.store(self, self._patience)
        numbers = {
            "RANK": self.rank,
            "LOCAL_RANK": self.local_rank,
            "WORLD_SIZE": self.world_size,
            "LOCAL_WORLD_SIZE": self.local_size,
        }
        os.environ.update({name: str(number) for name, number in numbers.items()})
        AgentStore(store.port, store.host).offer()  # type: ignore[attr-defined]  # a TCPStore

    def meet(self, place: str, among: int | None = None) -> None:
        """Collective: return once ``among`` ranks have called this with the same, new name.

        Goes through the store, so it works while the group is busy.

        Args:
            place: a name that was not met at before; a subgroup needs one of its own.
            among: how many ranks meet; the whole world if left out.
        """
        store = self._shared_store()
        wanted = self.world_size if among is None else among
        if store.add(f"meet/{place}", 1) == wanted:
            store.set(f"met/{place}", "")
        store.wait([f"met/{place}"])

    def count(self, place: str, add: int = 0) -> int:
        """Add to a counter that all ranks share, in one step, and return what it holds then.

        Args:
            place: the counter's name; it holds 0 at first.
            add: how much; 0 only reads.
        """
        return int(self._shared_store().add(f"count/{place}", add))

    def store(self, prefix: str) -> Store:
        """The store that all ranks share, with keys of its own for whatever needs one.

        Args:
            prefix: before its keys; the same on every rank that should find them.
        """
        return PrefixStore(prefix, self._shared_store())

    def _shared_store(self) -> Store:
        if self._store is None:
            raise RuntimeError("a rank can meet the others or count only after it has joined")
        return self._store

    def synchronize(self) -> None:
        """Wait until this rank's device has done what it was given."""
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)


# ------------------------------------------------------------------------------------ a whole life


def live(assignment: Assignment) -> None:
    """The whole life of a rank's process; returns when the process should end."""
    born = time.monotonic()
    gc.freeze()  # what was forked is not garbage, and looking at it would copy its pages
    _detach(assignment)
    sender = Sender(assignment.way_back.fileno())
    gate = Identity(assignment.gate.fileno())
    stacks.answer_on(assignment.way_back.fileno())
    error: BaseException | None = None
    try:
        message: Message = Completed(_packed(_work(assignment, sender, born)), time.monotonic())
    except BaseException as raised:  # noqa: BLE001 - whatever it is, the launcher must hear of it
        error, message = raised, _ending(assignment.rank, raised)
    if sender.lost:
        _leave_by_status(error)
    sender.send(message)
    if isinstance(message, Failed) and not isinstance(error, SystemExit):
        _flush()
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a user's program had to save is saved
    _flush()
    if gate.holds():
        wait_at(assignment.gate.fileno())
    assignment.here.rendezvous.leave()
    if assignment.world.rank_per_gpu:
        gpu.leave_group()


def _work(assignment: Assignment, sender: Sender, born: float) -> Any:  # noqa: ANN401 - the user's value
    """Join the group and call the function."""
    world, here = assignment.world, assignment.here
    torch.set_num_threads(1)  # N ranks share the cores; and no pool inherited from a parent is used
    if here.interface is not None:
        take_interface(here.interface)
    if world.lazy is not None:
        os.environ["TORCH_GLOO_LAZY_INIT"] = str(int(world.lazy))
    if assignment.mpi is not None:
        pmi.take(*assignment.mpi)
    rank = Rank(assignment, sender)
    rank.reach("started")
    if world.provider:
        import_module(world.provider)
    work = assignment.work
    target, args = pickle.loads(work) if isinstance(work, bytes) else work  # noqa: S301 - from the program that started us
    gpu.take(rank.device)
    _keep_reducers()
    if world.user_program is not None and not world.user_program.group:
        rank.announce(here.rendezvous)
    else:
        rank.join(here.rendezvous)
    rank.startup_seconds = time.monotonic() - born
    return target(rank, *args)


def _keep_reducers() -> None:
    """Free no DDP model's reducer before this process ends.

    One that is freed after ``destroy_process_group`` frees the group, and joins gloo's thread while
    it keeps the GIL, for which that thread may wait (torch 2.13).
    """
    make: Any = vars(dist)["Reducer"]
    kept = []

    def reducer(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        kept.append(make(*args, **named))
        return kept[-1]

    vars(dist)["Reducer"] = reducer  # DDP asks for it by this name


def _packed(value: Any) -> bytes:  # noqa: ANN401 - the user's value
    """A value by pickle; one that can't be pickled is the rank's error."""
    try:
        return dumps(value)
    except Exception as error:
        raise TypeError(f"the value that it returned can't be sent back: {error}") from error


def _ending(rank: int, error: BaseException) -> Completed | Failed:
    """What to say of a function that did not return; leaving with exit code 0 is a return."""
    at = time.monotonic()
    if not isinstance(error, SystemExit):
        return Failed(failures.raised(rank, error))
    code = _exit_code(error)
    if not code:
        return Completed(dumps(None), at)
    words = "" if isinstance(error.code, int) else failures.shown(error.code)
    return Failed(Died(rank=rank, at=at, exit_code=code, message=words))


def _exit_code(leaving: SystemExit) -> int:
    """As the system takes it: a number modulo 256, anything else is a message and means 1."""
    code = leaving.code
    return code & 0xFF if isinstance(code, int) else int(code is not None)


def _leave_by_status(error: BaseException | None) -> NoReturn:
    """Say by the exit status what can't be said through a pipe that the program has closed."""
    status = 0
    if isinstance(error, SystemExit):
        status = _exit_code(error)
    elif error is not None:
        status = 1
        traceback.print_exception(type(error), error, error.__traceback__)
    _flush()
    os._exit(status)


def _flush() -> None:
    """Write out what was printed: the process may end without doing so."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # its reader is gone
            stream.flush()


# ------------------------------------------------------------------------- around a rank's process


def _detach(assignment: Assignment) -> None:
    """Let go of what belongs to the launcher: descriptors, handlers, output; and die with it."""
    for fd in assignment.inherited:
        os.close(fd)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the launcher, which stops us
    if assignment.output is not None:
        os.dup2(assignment.output.fileno(), 1)
        os.dup2(assignment.output.fileno(), 2)
    if not die_with_parent():
        threading.Thread(target=_leave_with_launcher, args=(assignment,), daemon=True).start()
    else:
        if "multiprocessing.forkserver" in sys.modules:
            _free_forkserver()
        gate = select.poll()  # not select.select, which takes no descriptor beyond 1023
        gate.register(assignment.gate.fileno(), select.POLLIN | select.POLLHUP)
        if gate.poll(0):  # the launcher was gone before we asked the kernel to watch it
            os._exit(1)
    if assignment.world.user_program is not None:
        _lead_session(assignment)


def _free_forkserver() -> None:
    """Close the end of the forkserver's lifeline that every rank inherits from it.

    The forkserver ends when nobody holds that end any more; while ranks did, a killed launcher
    would leave it, and so them, alive.
    """
    server = getattr(sys.modules["multiprocessing.forkserver"], "_forkserver", None)
    lifeline = getattr(server, "_forkserver_alive_fd", None)
    if lifeline is not None and getattr(server, "_forkserver_pid", None) is None:
        os.close(lifeline)
        server._forkserver_alive_fd = None  # type: ignore[union-attr]  # noqa: SLF001 - there is no public way


def _leave_with_launcher(assignment: Assignment) -> None:
    """Where the kernel does not watch the launcher: a thread does."""
    wait_at(assignment.gate.fileno())
    directory = assignment.here.rendezvous.directory
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
    time.sleep(0.5)  # time to leave in an orderly way, if that is what the others do
    os._exit(1)


def wait_at(gate: int) -> None:
    """Return when the launcher has closed its end, or is gone."""
    while os.read(gate, 1):
        pass


def _lead_session(assignment: Assignment) -> None:
    """For a user program: a session, a standard input, output line by line, and Ctrl-C."""
    with suppress(OSError):  # it leads one already
        os.setsid()
    if assignment.stdin is None:
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        if nowhere:
            os.close(nowhere)
    else:
        os.dup2(assignment.stdin.fileno(), 0)
        assignment.stdin.close()
    # Python's own streams stay open as long. Those that a forked rank has inherited may be of
    # another encoding, keep back what was written, or not lead to these descriptors at all.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    program = assignment.world.user_program
    if program is None or program.terminal != assignment.rank:
        for name, fd in (("stdout", 1), ("stderr", 2)):
            stream = open(  # noqa: SIM115
                fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
            )
            setattr(sys, name, stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
