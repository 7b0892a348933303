"""The handle that a rank's function receives.

Under nccl the rank's group is bound to its GPU (``device_id`` of ``init_process_group``). NCCL then
connects at once, so an unusable GPU is reported when the rank joins, not in the middle of an op,
and later barriers and groups use that GPU too. gloo gets no ``device_id``: it doesn't need one, and
from torch 2.11 on it would connect all ranks at once.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from datetime import timedelta
from multiprocessing import util
from typing import TYPE_CHECKING, Any, NoReturn

from distdemo.errors import DistdemoError
from distdemo.launcher import failures
from distdemo.launcher.messages import Identity, PhaseReached, Sender, ValueSent, dumps
from distdemo.launcher.rendezvous import announce
from distdemo.launcher.torch_import import load_torch

# Under spawn and forkserver the child imports this module first, so load torch quietly here. A
# forkserver preloads it once for all ranks; under fork it is loaded already.
load_torch()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch._C._distributed_c10d import PrefixStore, Store  # noqa: E402 - torch.distributed's own, typed

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldSpec
    from distdemo.launcher.rendezvous import LocalRanks, Rendezvous

MAX_TIMEOUT_S = 2e6  # a TCPStore counts milliseconds in 31 bits


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

    def __init__(
        self,
        rank: int,
        world: WorldSpec,
        local_ranks: LocalRanks,
        sender: Sender,
        exit_pipe: Identity,
    ) -> None:
        self.rank = rank
        self.world_size = world.world_size
        self.local_rank = local_ranks.local_rank + rank - local_ranks.ranks.start
        self.local_size = local_ranks.local_size
        self.backend = world.backend
        self.rank_per_gpu = world.rank_per_gpu
        self.device = "cpu"
        if world.device != "cpu":
            self.device = device_of(world.device, self.local_rank, torch.cuda.device_count())
        self.startup_seconds = 0.0
        # The launcher enforces the deadline; the backend's timeout is only a fallback.
        self._timeout = timedelta(seconds=min(2 * world.deadline + 60, MAX_TIMEOUT_S))
        self._is_lazy = world.connects_lazily
        self._sender = sender
        self._exit_pipe = exit_pipe
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

    def send_last(self, value: Any) -> NoReturn:
        """Send a value, then do nothing more until the launcher ends this process."""
        self.send(value)
        self._exit_pipe.wait_for_close()
        os._exit(0)

    def exit_if_forked(self, error: BaseException | None = None) -> None:
        """Exit, as Python does after this exception, if the rank has forked this process."""
        if self._sender.forked:
            exit_as_python(error)

    def join(self, rendezvous: Rendezvous) -> None:
        """Join the world's default group. Collective.

        Unless ranks connect lazily, return when all are connected: a rank that fails or destroys
        the group before would break the connections that slower ranks still make.
        """
        self._connect(rendezvous)
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
        if not self._is_lazy:
            self.barrier("all ranks are connected")

    def _connect(self, rendezvous: Rendezvous) -> None:
        store = rendezvous.store(self.world_size, self._timeout, self.send)
        self._store = PrefixStore(rendezvous.prefix, store) if rendezvous.prefix else store

    def announce(self, rendezvous: Rendezvous) -> None:
        """Let the program create the group itself. Collective."""
        self._connect(rendezvous)
        self.set_variables()
        announce(self._shared_store())

    def set_variables(self) -> None:
        """Set this rank's numbers in the environment, as torchrun does."""
        os.environ.update(
            RANK=str(self.rank),
            LOCAL_RANK=str(self.local_rank),
            WORLD_SIZE=str(self.world_size),
            LOCAL_WORLD_SIZE=str(self.local_size),
        )

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


# ----------------------------------------------------------------------------------------- devices


def device_of(device: str, local_rank: int, gpus: int) -> str:
    """Return the device of a rank. Ranks share GPUs if their host has fewer GPUs than ranks.

    Args:
        device: ``cuda``.
        local_rank: Number of the rank among those of its host.
        gpus: Number of GPUs that this process sees.

    Raises:
        DistdemoError: This process sees no GPU.
    """
    if gpus == 0:
        raise DistdemoError(
            "This rank sees no GPU.",
            f"CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}.",
            "Check that nvidia-smi works on its host.",
        )
    return f"{device}:{local_rank % gpus}"


def set_device(device: str) -> None:
    """Initialise CUDA and make this the process's GPU.

    Raises:
        DistdemoError: CUDA can't be initialised, or not on this GPU.
    """
    if device == "cpu":
        return
    try:
        torch.cuda.set_device(device)
        torch.cuda.current_stream()  # set_device alone does not initialise it in every release
    except (RuntimeError, AssertionError, AttributeError) as error:
        said = str(error).strip() or type(error).__name__
        hint = "Check that nvidia-smi works there and that torch is built for its driver."
        if "forked" in said or "initialization error" in said:
            hint = "The process that started it had used CUDA: use --start-method forkserver."
        what = f"{device} can't be used: {said.splitlines()[0].strip()}"
        raise DistdemoError(what, "CUDA could not be initialised.", hint) from error


# ------------------------------------------------------------------------------------- exit status


def exit_status(error: BaseException | None) -> tuple[int, str]:
    """Return the exit code after this exception, and what Python writes to standard error."""
    if error is None:
        return 0, ""
    if not isinstance(error, SystemExit):
        return 1, failures.raised(0, error).traceback
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF, ""
    return 1, failures.text_of(error.code)


def exit_as_python(error: BaseException | None) -> NoReturn:
    """Exit as Python does after this exception, in a process that has no pipe to report it."""
    status, text = exit_status(error)
    with suppress(Exception):  # closed, or of the program's own kind
        sys.stderr.write(f"{text.rstrip()}\n" if text else "")
    util._run_finalizers(0)  # type: ignore[attr-defined]  # noqa: SLF001 - as multiprocessing does at the end of a rank
    flush()
    os._exit(status)


def flush() -> None:
    """Flush stdout and stderr: the process may exit without doing so."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or its reader has exited
            stream.flush()
