"""The machine: its cores, its memory, its environment, and what other programs take from ranks.

Disturbance is measured, not inferred from the ranks' times. Each rank reads, before and after every
launch, how long the cores that it may use were busy, and how much CPU time it used itself. What is
left was taken by other programs, or by a hypervisor. It counts as taken from the ranks only if the
cores don't suffice for both.

Before and after the sizes of a launch each rank also copies memory for a moment. A rank that gets
less of a core than the other ranks almost every time shares it with something else, or is stopped
at times. Copies whose speed per CPU second varies show a machine whose memory or frequency depends
on others.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from distdemo.measure.statistics import interval, median, quantile

TUNING = (
    *("GLOO_", "NCCL_", "TORCH_DISTRIBUTED_", "TORCH_GLOO_", "TORCH_NCCL_", "CUDA_VISIBLE_DEVICES"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "MPICH_", "MPIR_", "I_MPI_", "OMPI_MCA_", "FI_", "UCX_"),
)
"""Prefixes of the variables that tune libraries; no others are recorded."""
COPY_S = 0.03  # seconds of copying, twice per launch
COPY_BYTES = 16 << 20  # more than most cores' own cache
TOTAL_COPY_BYTES = 256 << 20  # buffers of all ranks
COPIES_PER_SYNC = 16  # copies queued on a GPU before each synchronization
TAKEN_CORES = 0.15
"""Cores' worth of time from which on other programs disturb. All ranks wait for the slowest one, so
the number of ranks doesn't matter. On an idle machine it is 0 to 0.05; with 0.3 the medians of mpi
already differ by a factor."""
COPY_RATIO = 2.0
"""Ratio of the copies' upper quartile to the lower one from which on they vary."""
SLOWED_SHARE = 0.75
"""Share of the best rank's time on a core below which a rank is slowed: with one other program on
its core it gets a half."""

# ------------------------------------------------------------------------------------------- cores


def usable_cpus() -> tuple[int, ...]:
    """Return the CPUs that this process may run on; () if the system doesn't say."""
    try:
        return tuple(sorted(os.sched_getaffinity(0)))
    except AttributeError:  # not on macOS
        return ()


def available_cores(root: Path = Path("/")) -> float:
    """Return the CPU time that this process and its ranks can have, in cores.

    Args:
        root: Directory that contains /sys.
    """

    def words(path: str) -> list[str]:
        """Return the words of a file; [] if it is unreadable."""
        try:
            return (root / "sys/fs/cgroup" / path).read_text(encoding="utf-8").split()
        except (OSError, ValueError):
            return []

    usable = float(len(usable_cpus()) or os.cpu_count() or 1)
    limit = words("cpu.max")  # cgroup v2, then v1
    if not limit:
        limit = [*words("cpu/cpu.cfs_quota_us"), *words("cpu/cpu.cfs_period_us")]
    if len(limit) == 2 and all(word.isdigit() and int(word) for word in limit):  # not max, not -1
        return min(usable, int(limit[0]) / int(limit[1]))
    return usable


# ------------------------------------------------------------------------------------- environment


def environment(*, gpu: bool) -> dict[str, str | int | float]:
    """Return the environment for the report; call it after all ranks have exited.

    Args:
        gpu: True to include the name of the GPU.
    """
    facts: dict[str, str | int | float] = {
        "host": socket.gethostname(),
        "processor": _processor(),
        "cores": available_cores(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        **{name: os.environ[name] for name in sorted(os.environ) if name.startswith(TUNING)},
    }
    if gpu:
        import torch

        facts["gpu"] = torch.cuda.get_device_name(0)
    return facts


def _processor() -> str:
    """Return the processor's model."""
    lines: list[str] = []
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or "unknown")


# ------------------------------------------------------------------------------------------ copies


@dataclass(frozen=True, slots=True)
class CopySpeed:
    """Copying memory for a moment.

    Attributes:
        core_share: Share of a core that the rank got, 0 to 1.
        bytes_per_s: Bytes that it copied per second of CPU time.
    """

    core_share: float
    bytes_per_s: float


def copier(
    size: int, device: str = "cpu", synchronize: Callable[[], object] = lambda: None
) -> Callable[[], int]:
    """Return a function that copies from one buffer to another and returns the number of bytes.

    Args:
        size: Bytes of a buffer.
        device: Device of the buffers.
        synchronize: Function that waits for the device.
    """
    import torch

    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    copies = 1 if device == "cpu" else COPIES_PER_SYNC

    def copy() -> int:
        for _ in range(copies):
            target.copy_(source)
        synchronize()
        return copies * size

    copy()  # maps the pages
    return copy


def copy_for_a_moment(world_size: int) -> CopySpeed:
    """Copy memory and return what that showed.

    Args:
        world_size: Number of ranks that do this at once.
    """
    copy = copier(min(COPY_BYTES, TOTAL_COPY_BYTES // world_size))
    copied = 0
    began_s = time.perf_counter()
    cpu_began_s = time.thread_time()
    while (wall_s := time.perf_counter() - began_s) < COPY_S:
        copied += copy()
    cpu_s = time.thread_time() - cpu_began_s
    return CopySpeed(min(1.0, cpu_s / wall_s), copied / cpu_s if cpu_s > 0 else 0.0)


# --------------------------------------------------------------------------------- load, in a rank


@dataclass(frozen=True, slots=True)
class LaunchLoad:
    """Measurement of one rank in one launch.

    Attributes:
        launch: Launch that it belongs to.
        cpus: CPUs that the rank may run on; empty if the system doesn't say.
        wall_s: Duration of the launch's measurements.
        own_s: CPU time of this rank.
        busy_s: Time that these CPUs were busy; None if unknown.
        copies: What it measured while it copied.
    """

    launch: int
    cpus: tuple[int, ...]
    wall_s: float
    own_s: float
    busy_s: float | None
    copies: tuple[CopySpeed, ...]


class Reading(NamedTuple):
    """A rank's CPUs, and the clocks at one moment: wall, its own CPU time, its CPUs' busy time."""

    cpus: tuple[int, ...]
    at_s: float
    own_s: float
    busy_s: float | None


def read_clocks() -> Reading:
    """Return the clocks now."""
    cpus = usable_cpus()
    busy = None
    with suppress(OSError, ValueError):
        busy = busy_s(Path("/proc/stat").read_text(encoding="ascii"), cpus)
    return Reading(cpus, time.perf_counter(), time.process_time(), busy)


def busy_s(stat: str, cpus: Collection[int], ticks_per_s: int | None = None) -> float | None:
    """Return the seconds that these CPUs have run programs, or were taken by a hypervisor.

    Time in interrupts is left out: the kernel's part of the ranks' own messages.

    Args:
        stat: Content of ``/proc/stat``.
        cpus: CPUs to add up.
        ticks_per_s: Unit of its numbers; None for this system's.

    Returns:
        Seconds since the system started; None if a CPU is missing.
    """
    lines = {line.partition(" ")[0]: line.split()[1:] for line in stat.splitlines()}
    if not cpus or not all(f"cpu{cpu}" in lines for cpu in cpus):
        return None
    total = 0
    for cpu in cpus:
        ticks = [int(word) for word in lines[f"cpu{cpu}"][:8]]
        user, nice, system, _, _, _, _, steal = [*ticks, 0, 0, 0, 0][:8]  # old ones lack some
        total += user + nice + system + steal
    return total / (ticks_per_s or os.sysconf("SC_CLK_TCK"))


def load_since(before: Reading, launch: int = 0, copies: tuple[CopySpeed, ...] = ()) -> LaunchLoad:
    """Return what this rank measured since the first reading."""
    now = read_clocks()
    busy = None
    if before.busy_s is not None and now.busy_s is not None:
        busy = now.busy_s - before.busy_s
    wall = now.at_s - before.at_s
    return LaunchLoad(launch, before.cpus, wall, now.own_s - before.own_s, busy, copies)


# ---------------------------------------------------------------------------- load of all launches


@dataclass(frozen=True, slots=True)
class Load:
    """Measured disturbance of the machine while the ranks were timed.

    Attributes:
        taken_cores: Cores' worth of time that other programs, or a hypervisor, took from the ranks;
            None if this system doesn't say.
        copies_bytes_per_s: Speed of copies on the slowest rank, before and after each launch; the
            time that other programs took is left out.
        core_shares: Share of a core that each rank got while it copied, a median.
        slowed_ranks: Ranks that got much less of a core than the best rank almost every time.
    """

    taken_cores: float | None
    copies_bytes_per_s: tuple[float, ...]
    core_shares: tuple[float, ...]
    slowed_ranks: tuple[int, ...] = ()

    @property
    def varying_copies(self) -> tuple[float, float] | None:
        """Quartiles of the copies' speeds if they differ too much; else None."""
        ordered = sorted(self.copies_bytes_per_s)
        low, high = quantile(ordered, 0.25), quantile(ordered, 0.75)
        return (low, high) if high > COPY_RATIO * low else None


def total_load(launches: Sequence[Sequence[LaunchLoad]], hosts: Sequence[str] = ()) -> Load | None:
    """Return the disturbance over all launches; None without any.

    Args:
        launches: What each rank measured, in rank order, for each launch.
        hosts: Host of each rank; empty if all are on one.
    """
    if not launches:
        return None
    moments = [
        copies
        for launch in launches
        for copies in zip(*(load.copies for load in launch), strict=True)
    ]
    best = [max(copy.core_share for copy in copies) for copies in moments]
    core_shares = []
    slowed_ranks = []
    for rank in range(len(launches[0])):
        shares = [copies[rank].core_share for copies in moments]
        core_shares.append(median(shares))
        of_best = [share / most if most else 1.0 for share, most in zip(shares, best, strict=True)]
        ends = interval(of_best)
        if ends is not None and ends[1] < SLOWED_SHARE:
            slowed_ranks.append(rank)
    taken = taken_cores(launches, hosts)
    bound = len({load.cpus for load in launches[0]}) > 1
    if taken is not None and taken > TAKEN_CORES and not bound:
        slowed_ranks = []  # other programs move from core to core, and happened to meet this rank
    return Load(
        taken,
        tuple(min(copy.bytes_per_s for copy in copies) for copies in moments),
        tuple(core_shares),
        tuple(slowed_ranks),
    )


def taken_cores(
    launches: Sequence[Sequence[LaunchLoad]], hosts: Sequence[str] = (), at_once: int | None = None
) -> float | None:
    """Return the cores' worth of time that others took, on the worst set of CPUs.

    Ranks that may run on the same CPUs of a host are taken together.

    Args:
        launches: As in `total_load`.
        hosts: Host of each rank; empty if all are on one.
        at_once: Number of ranks that run at once while the other ranks sleep; None for all.
    """
    sets: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for rank, load in enumerate(launches[0]):
        sets.setdefault((hosts[rank] if hosts else "", load.cpus), []).append(rank)
    worst = None
    for (_, cpus), ranks in sets.items():
        used = min(len(ranks), len(cpus), at_once or len(ranks))
        wall_s = lacking_s = 0.0
        for launch in launches:
            first = launch[ranks[0]]
            if first.busy_s is None:
                return None
            others_s = max(0.0, first.busy_s - sum(launch[rank].own_s for rank in ranks))
            lacking_s += max(0.0, others_s - (len(cpus) - used) * first.wall_s)
            wall_s += first.wall_s
        if wall_s > 0:
            worst = max(worst or 0.0, min(used, lacking_s / wall_s))
    return worst
