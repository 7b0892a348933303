"""The machine that the checks examine. Every query has a time limit."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from resource import getrlimit
from typing import TYPE_CHECKING, Any

from distdemo import backends
from distdemo.errors import UsageError
from distdemo.joined.interfaces import addresses, resolved
from distdemo.launcher import limits
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.platform import system

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

MAX_OUTPUT = 1 << 20  # characters of a program's output that are kept
TEST_S = 10.0 if system.forks_safely else 30.0  # spawned ranks import torch first
TEST_WORLD = WorldSpec(2, deadline=TEST_S, capture=True, lazy=True)
FAULTY_S = 60.0  # DDP's first module imports much of torch


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """Output of a program on stdout and stderr.

    Attributes:
        status: Exit code; None if it timed out.
    """

    status: int | None
    text: str = ""


class System:
    """The machine and its environment. Tests simulate one by replacing attributes.

    Attributes:
        environ: Environment variables.
        hostname: Hostname of this machine.
        root: Directory that contains /proc, /sys, /dev and /etc.
        python: Python interpreter of the ranks.
        runs_world: True if a test world may be started.
    """

    def __init__(self, *, runs_world: bool = True) -> None:
        self.environ: Mapping[str, str] = dict(os.environ)
        self.hostname = socket.gethostname()
        self.root = Path("/")
        self.python = Path(sys.executable)
        self.runs_world = runs_world
        self.disk_usage = shutil.disk_usage
        self.rlimit = getrlimit

    def run(self, command: Sequence[str], timeout_s: float) -> ProgramOutput:
        """Run a program; after the timeout or an exception, kill it and its children.

        Raises:
            OSError: It can't be started.
        """
        with subprocess.Popen(  # noqa: S603 - on PATH or in Python's environment
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                text, _ = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                return ProgramOutput(None)
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
        return ProgramOutput(process.returncode, text[:MAX_OUTPUT])

    def text(self, path: str) -> str:
        """Return the contents of a file such as ``proc/meminfo``, or "" if it is unreadable."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def exists(self, path: str) -> bool:
        """Return True if the file or directory exists."""
        return (self.root / path).exists()

    def which(self, name: str) -> Path | None:
        """Return the path of the program that a shell would run, or None."""
        path = shutil.which(name, path=self.environ.get("PATH", ""))
        return Path(path) if path else None

    def installed(self, module: str) -> bool:
        """Return True if Python finds this module."""
        return find_spec(module) is not None

    def writable(self, folder: Path) -> bool:
        """Return True if a file can be created in this directory."""
        try:
            with tempfile.TemporaryFile(dir=folder):
                return True
        except OSError:
            return False

    def rank_limits(self, start_method: str) -> Sequence[limits.Limit]:
        """Return the limits on ranks by memory, processes and open files, in this order."""
        return limits.limits(WorldSpec(1, start_method=start_method))

    def resolve(self, name: str) -> tuple[tuple[str, ...], str]:
        """Return the addresses of a name, and the reason if there are none."""
        try:
            answers = resolved(name, 0)
        except UsageError as error:
            return (), error.why
        return tuple(dict.fromkeys(str(address[0]) for _, address in answers)), ""

    def interfaces(self) -> dict[str, list[str]]:
        """Return the addresses of the interfaces that are up, except IPv6 link-local ones.

        They include the addresses of labels (``eth0:1``).
        """
        interfaces: dict[str, list[str]] = {}
        for label, known in addresses().items():
            name = label.partition(":")[0]
            own = [address for address in known if not address.startswith("fe80:")]
            if own and self.text(f"sys/class/net/{name}/operstate").strip() != "down":
                interfaces.setdefault(name, []).extend(own)
        return {name: sorted(own, key=lambda a: ":" in a) for name, own in interfaces.items()}

    def port_problem(self, port: int) -> str:
        """Return the reason this port can't be bound, or "". Never listens on it."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError as error:
                return "in use" if error.errno == errno.EADDRINUSE else str(error)
        return ""

    def torch(self) -> Any:
        """Return the module torch.

        Raises:
            UsageError: It is not installed, or broken.
        """
        from distdemo.launcher.torch_import import load_torch

        load_torch()
        import torch

        return torch

    def built_in_backends(self) -> dict[str, str]:
        """Return descriptions of torch's backends, such as ``nccl 2.27``, by name."""
        import torch.distributed as dist

        built_in = {}
        for name, backend in backends.REGISTRY.items():
            is_available = getattr(dist, f"is_{name}_available", None)
            if dist.is_available() and is_available and is_available():
                built_in[name] = f"{name} {backend.version()}".strip()
        return built_in

    def test_world(self) -> WorldReport:
        """Run an all_reduce in a two-rank world over gloo.

        Raises:
            UsageError: It can't be started.
        """
        from distdemo.launcher.local import run_world  # imports torch, which may be missing

        return run_world(TEST_WORLD, sum_ranks)

    def faulty_world(self) -> WorldReport:
        """Run a two-rank world under the sanitizer, in which rank 1 leaves before DDP's reduction.

        Raises:
            UsageError: It can't be started.
        """
        from distdemo.calls.inspector import run_noted

        return run_noted(replace(TEST_WORLD, deadline=FAULTY_S), leave_before_reduction)


def leave_before_reduction(rank: Rank) -> None:
    """Compute gradients with DDP on all ranks but rank 1, where the program ends before."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    loss = DistributedDataParallel(torch.nn.Linear(1, 1))(torch.ones(1, 1)).sum()
    if rank.rank != 1:
        loss.backward()


def sum_ranks(rank: Rank) -> float:
    """Return the sum of rank + 1 over all ranks. Collective."""
    import torch
    import torch.distributed as dist

    number = torch.tensor([float(rank.rank + 1)])
    rank.report_phase("entered all_reduce")
    dist.all_reduce(number)
    rank.report_phase("left all_reduce")
    return float(number.item())
