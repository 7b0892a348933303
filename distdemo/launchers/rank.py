"""The rank's side: come to life, join the group, run the function, report, and leave with the rest.

Runs in the child process. Its parent may vanish at any moment; it then ends too.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distdemo.launchers import stacks
from distdemo.launchers.channel import Sender, Work, dumps
from distdemo.torch_import import load_torch

# Under spawn and forkserver this module is what the child imports first, so torch is loaded here,
# quietly; a forkserver preloads it once for all ranks. Under fork it is there already.
load_torch()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch._C._distributed_c10d import FileStore, Store  # noqa: E402 - torch.distributed's own, typed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from distdemo.launchers.rendezvous import Rendezvous
    from distdemo.model import WorldSpec


@dataclass(frozen=True, slots=True)
class Assignment:
    """All that a rank needs to know.

    Attributes:
        way_back: the write end of the rank's pipe to the launcher.
        gate: the read end of a pipe that the launcher closes when all ranks may leave.
        output: the write end for stdout and stderr, if they are captured.
        inherited: descriptors of the launcher that a forked rank has to close.
        work: the function, called as ``target(rank, *args)``.
    """

    rank: int
    world: WorldSpec
    rendezvous: Rendezvous
    way_back: Connection
    gate: Connection
    output: Connection | None
    inherited: tuple[int, ...]
    work: Work


class Rank:
    """One rank of a world, as the function that it runs sees it.

    Attributes:
        rank: this rank's number.
        world_size: how many there are.
        backend: the backend of the default group.
        device: where this rank's tensors live, ``cpu`` or ``cuda:0``.
        startup_seconds: from its birth until it had joined the group.
    """

    def __init__(self, assignment: Assignment, sender: Sender) -> None:
        self.rank = assignment.rank
        self.world_size = assignment.world.world_size
        self.backend = assignment.world.backend
        self.device = _device(assignment)
        self.startup_seconds = 0.0
        self._timeout = assignment.world.timeout
        self._sender = sender
        self._steps = 0
        self._store: Store | None = None

    def reach(self, phase: str) -> None:
        """Tell the launcher that this rank got so far, so that a timeout can say who did not."""
        self._sender.send("phase", self._steps, phase, time.monotonic())
        self._steps += 1

    def join(self, path: str) -> None:
        """Collective: become a member of the world's default group."""
        from datetime import timedelta

        # The launcher judges at the deadline; the backend's own timeout is only a second net.
        patience = timedelta(seconds=2 * self._timeout + 60)
        self._store = FileStore(path, self.world_size)
        self._store.set_timeout(patience)
        dist.init_process_group(
            self.backend,
            store=self._store,
            rank=self.rank,
            world_size=self.world_size,
            timeout=patience,
        )

    def meet(self, place: str) -> None:
        """Collective: return once every rank has called this with the same, new name.

        Goes through the store, so it works while the group is busy.
        """
        if self._store is None:
            raise RuntimeError("a rank can meet the others only after it has joined")
        if self._store.add(f"meet/{place}", 1) == self.world_size:
            self._store.set(f"met/{place}", "")
        self._store.wait([f"met/{place}"])

    def synchronize(self) -> None:
        """Wait until this rank's device has done what it was given."""
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)


def live(assignment: Assignment) -> None:
    """The whole life of a rank's process; returns when the process should end."""
    born = time.monotonic()
    gc.freeze()  # what was forked is not garbage, and looking at it would copy its pages
    _detach(assignment)
    sender = Sender(assignment.way_back.fileno())
    stacks.answer_on(assignment.way_back.fileno())
    try:
        value = _work(assignment, sender, born)
    except SystemExit as error:
        _report_exit(sender, error)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the launcher must hear of it
        _report_error(sender, error)
        return
    else:
        _report_value(sender, value)
    _flush()
    _wait_at(assignment.gate.fileno())
    if dist.is_initialized() and assignment.world.backend == "nccl":
        dist.destroy_process_group()


def _work(assignment: Assignment, sender: Sender, born: float) -> Any:  # noqa: ANN401 - the user's value
    """Join the group and call the function."""
    torch.set_num_threads(1)  # N ranks share the cores; and no pool inherited from a parent is used
    _stay_on_loopback()
    if assignment.world.lazy is not None:
        os.environ["TORCH_GLOO_LAZY_INIT"] = str(int(assignment.world.lazy))
    rank = Rank(assignment, sender)
    rank.reach("started")
    target, args = assignment.work.unpack()
    if rank.device != "cpu":
        torch.cuda.set_device(rank.device)
    rank.join(assignment.rendezvous.path)
    rank.startup_seconds = time.monotonic() - born
    rank.reach("joined the group")
    return target(rank, *args)


# --------------------------------------------------------------------------------- surroundings


def _detach(assignment: Assignment) -> None:
    """Let go of what belongs to the launcher: descriptors, handlers, output; and die with it."""
    for fd in assignment.inherited:
        os.close(fd)
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the launcher, which stops us
    if assignment.output is not None:
        os.dup2(assignment.output.fileno(), 1)
        os.dup2(assignment.output.fileno(), 2)
    _die_with_launcher(assignment)


def _die_with_launcher(assignment: Assignment) -> None:
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1  # prctl(2)
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        _free_forkserver()
        _leave_if_abandoned(assignment.gate.fileno())
    else:
        import threading

        threading.Thread(target=_leave_with_launcher, args=(assignment,), daemon=True).start()


def _free_forkserver() -> None:
    """Close the end of the forkserver's lifeline that every rank inherits from it.

    The forkserver ends when nobody holds that end any more; while ranks did, a killed launcher
    would leave it, and so them, alive.
    """
    from multiprocessing import forkserver

    server = getattr(forkserver, "_forkserver", None)
    lifeline = getattr(server, "_forkserver_alive_fd", None)
    if lifeline is not None and getattr(server, "_forkserver_pid", None) is None:
        os.close(lifeline)
        server._forkserver_alive_fd = None  # type: ignore[union-attr]  # noqa: SLF001 - there is no public way


def _leave_if_abandoned(gate: int) -> None:
    """End at once if the launcher was gone before we asked the kernel to watch it."""
    import select

    watch = select.poll()  # not select.select, which takes no descriptor beyond 1023
    watch.register(gate, select.POLLIN | select.POLLHUP)
    if watch.poll(0):
        os._exit(1)


def _leave_with_launcher(assignment: Assignment) -> None:
    """Where the kernel does not watch the launcher: a thread does."""
    _wait_at(assignment.gate.fileno())
    if assignment.rendezvous.directory is not None:
        shutil.rmtree(assignment.rendezvous.directory, ignore_errors=True)
    time.sleep(0.5)  # time to leave in an orderly way, if that is what the others do
    os._exit(1)


def _stay_on_loopback() -> None:
    """Bind the backends to an interface that no other machine can reach.

    Overrides the user's setting: it is meant for worlds that span machines, and this one doesn't.
    """
    import socket

    names = [name for _, name in socket.if_nameindex()]
    loopback = next((name for name in ("lo", "lo0") if name in names), None)
    if loopback is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = loopback
        os.environ["NCCL_SOCKET_IFNAME"] = f"={loopback}"


def _device(assignment: Assignment) -> str:
    if assignment.world.device == "cpu":
        return "cpu"
    return f"cuda:{assignment.rank % torch.cuda.device_count()}"


# -------------------------------------------------------------------------------------- reports


def _report_value(sender: Sender, value: Any) -> None:  # noqa: ANN401 - the user's value
    try:
        sender.send("returned", time.monotonic(), dumps(value))
    except Exception as error:  # noqa: BLE001 - pickling a user's object may raise anything
        problem = TypeError(f"the value that it returned can't be sent back: {error}")
        _report_error(sender, problem)


def _report_exit(sender: Sender, error: SystemExit) -> None:
    """``sys.exit()`` in the function: like returning None, unless it carries a status."""
    if error.code in (None, 0):
        sender.send("returned", time.monotonic(), dumps(None))
        return
    code = error.code if isinstance(error.code, int) else 1
    note = "" if isinstance(error.code, int) else str(error.code)
    sender.send("exited", time.monotonic(), code, note)


def _report_error(sender: Sender, error: BaseException) -> None:
    trace = _user_traceback(error)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        text = "(its text can't be shown)"
    sender.send("raised", time.monotonic(), type(error).__qualname__, text, trace)
    _flush()


def _user_traceback(error: BaseException) -> str:
    """The traceback from the user's first frame on, or all of it if the fault is in a launcher."""
    trace = error.__traceback__
    while trace is not None and _is_launcher(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
    return "".join(lines)


def _is_launcher(file: str) -> bool:
    return os.path.dirname(file) == os.path.dirname(__file__)  # noqa: PTH120 - two strings, no path


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # whoever read it is gone
            stream.flush()


def _wait_at(gate: int) -> None:
    """Return when the launcher has closed its end, or is gone."""
    while os.read(gate, 1):
        pass
