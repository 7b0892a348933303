"""The rank's side: come to life, join the group, run the function, report, and leave with the rest.

Runs in the child process. Its parent may vanish at any moment; it then ends too.
"""

from __future__ import annotations

import gc
import os
import signal
import time
import traceback
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from distdemo.launcher import gpu, stacks
from distdemo.launcher.channel import Identity, Sender, Work, dumps
from distdemo.launcher.elastic import AgentRendezvous
from distdemo.launcher.guests import settle
from distdemo.launcher.report import flush, report_error, report_exit, report_value
from distdemo.launcher.surroundings import detach, take_interface, wait_at
from distdemo.launcher.torch_import import load_torch

# Under spawn and forkserver this module is what the child imports first, so torch is loaded here,
# quietly; a forkserver preloads it once for all ranks. Under fork it is there already.
load_torch()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch._C._distributed_c10d import PrefixStore, Store  # noqa: E402 - torch.distributed's own, typed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from distdemo.launcher.local_ranks import LocalRanks
    from distdemo.launcher.records import WorldSpec
    from distdemo.launcher.rendezvous import Rendezvous
    from distdemo.launcher.wires.contract import Ticket


@dataclass(frozen=True, slots=True)
class Assignment:
    """All that a rank needs to know.

    Attributes:
        local_ranks: which ranks are started beside this one, and how all meet.
        way_back: the write end of the rank's pipe to the launcher.
        gate: the read end of a pipe that the launcher closes when all ranks may leave.
        output: the write end for stdout and stderr, if they are captured.
        stdin: the launcher's standard input, for the one guest that reads it.
        ticket: what it finds the others with, where they don't meet at the store.
        inherited: descriptors of the launcher that a forked rank has to close.
        work: the function, called as ``target(rank, *args)``.
    """

    rank: int
    world: WorldSpec
    local_ranks: LocalRanks
    way_back: Connection
    gate: Connection
    output: Connection | None
    stdin: Connection | None
    ticket: Ticket
    inherited: tuple[int, ...]
    work: Work


class Rank:
    """One rank of a world, as the function that it runs sees it.

    Attributes:
        rank: this rank's number.
        world_size: how many there are.
        local_rank: its number among the ranks of its host.
        backend: the backend of the default group.
        rank_per_gpu: it takes one rank a GPU, so the group is bound to this rank's.
        device: where this rank's tensors live, ``cpu`` or ``cuda:0``.
        startup_seconds: from its birth until it had joined the group.
    """

    def __init__(self, assignment: Assignment, sender: Sender) -> None:
        self.rank = assignment.rank
        self.world_size = assignment.world.world_size
        self.local_rank = _local_rank(assignment)
        self.backend = assignment.world.backend
        self.rank_per_gpu = assignment.world.rank_per_gpu
        self.device = _device(assignment.world.device, self.local_rank)
        self.startup_seconds = 0.0
        self._timeout = assignment.world.deadline
        self._sender = sender
        self._steps = 0
        self._store: Store | None = None

    def reach(self, phase: str) -> None:
        """Tell the launcher that this rank got so far, so that a timeout can say who did not."""
        self._sender.send("phase", self._steps, phase, time.monotonic())
        self._steps += 1

    def tell(self, value: Any) -> None:  # noqa: ANN401 - anything that pickles
        """Send a value to the launcher while this rank runs, waiting while the pipe is full.

        Values of one rank arrive in order. Tensors of an accelerator arrive on the CPU.

        Raises:
            Exception: whatever pickling the value raises; nothing was sent then.
        """
        self._sender.send("told", time.monotonic(), dumps(value))

    def enter(self, rendezvous: Rendezvous | AgentRendezvous) -> None:
        """Collective: join the group; a program that makes its own is told how."""
        if isinstance(rendezvous, AgentRendezvous):
            rendezvous.announce(self)
            return
        self.join(rendezvous)
        self.reach("joined the group")

    def join(self, rendezvous: Rendezvous) -> None:
        """Collective: become a worker of the world's default group."""
        from datetime import timedelta

        # The launcher judges at the deadline; the backend's own timeout is only a second net.
        patience = timedelta(seconds=2 * self._timeout + 60)
        self._store = rendezvous.store(self, patience)
        dist.init_process_group(
            self.backend,
            store=self._store,
            rank=self.rank,
            world_size=self.world_size,
            timeout=patience,
            device_id=gpu.bound_device(self.device) if self.rank_per_gpu else None,
        )

    def meet(self, place: str, among: int | None = None) -> None:
        """Collective: return once so many ranks have called this with the same, new name.

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


def live(assignment: Assignment) -> None:
    """The whole life of a rank's process; returns when the process should end."""
    born = time.monotonic()
    gc.freeze()  # what was forked is not garbage, and looking at it would copy its pages
    detach(assignment)
    if assignment.world.user_program is not None:
        settle(assignment)
    sender = Sender(assignment.way_back.fileno())
    gate = Identity(assignment.gate.fileno())
    stacks.answer_on(assignment.way_back.fileno())
    try:
        value = _work(assignment, sender, born)
    except SystemExit as error:
        _leave_if_lost(sender, error)
        report_exit(sender, error)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the launcher must hear of it
        _leave_if_lost(sender, error)
        report_error(sender, error)
        return
    else:
        _leave_if_lost(sender, None)
        report_value(sender, value)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a guest had to save is saved
    flush()
    if gate.holds():
        wait_at(assignment.gate.fileno())
    assignment.local_ranks.rendezvous.leave()
    if assignment.world.rank_per_gpu:
        gpu.leave_group()


def _leave_if_lost(sender: Sender, error: BaseException | None) -> None:
    """Say by the exit status what can't be said through a pipe that the program has closed."""
    if not sender.lost:
        return
    code = getattr(error, "code", 1)
    if error is not None and not isinstance(error, SystemExit):
        traceback.print_exception(type(error), error, error.__traceback__)
    flush()
    os._exit(0 if error is None or code is None else code & 0xFF if isinstance(code, int) else 1)


def _work(assignment: Assignment, sender: Sender, born: float) -> Any:  # noqa: ANN401 - the user's value
    """Join the group and call the function."""
    torch.set_num_threads(1)  # N ranks share the cores; and no pool inherited from a parent is used
    if assignment.local_ranks.interface is not None:
        take_interface(assignment.local_ranks.interface)
    if assignment.world.lazy is not None:
        os.environ["TORCH_GLOO_LAZY_INIT"] = str(int(assignment.world.lazy))
    assignment.ticket.redeem()
    rank = Rank(assignment, sender)
    rank.reach("started")
    if assignment.world.provider:
        import_module(assignment.world.provider)
    target, args = assignment.work.unpack()
    gpu.take(rank.device)
    rank.enter(assignment.local_ranks.rendezvous)
    rank.startup_seconds = time.monotonic() - born
    return target(rank, *args)


def _local_rank(assignment: Assignment) -> int:
    site = assignment.local_ranks
    return site.local_rank + assignment.rank - site.ranks.start


def _device(device: str, local_rank: int) -> str:
    return device if device == "cpu" else gpu.device_of(device, local_rank, _gpus())


def _gpus() -> int:
    return int(torch.cuda.device_count())
