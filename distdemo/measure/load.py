"""Disturbance of the machine while ranks are timed: measured, not inferred from their times.

Each rank reads, before and after every launch, how long the cores that it may use were busy, and
how much CPU time it used itself. What is left was taken by other programs, or by a hypervisor. It
counts as taken from the ranks only if the cores don't suffice for both.

Before and after the sizes of a launch each rank also copies memory for a moment. A rank that gets
less of a core than the other ranks almost every time shares it with something else, or is stopped
at times. Copies whose speed per CPU second varies show a machine whose memory or frequency depends
on others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from distdemo.measure.records import Load
from distdemo.measure.statistics import interval, median, quantile

COPY_S = 0.03  # seconds of copying, twice per launch
COPY_BYTES = 16 << 20  # more than most cores' own cache
TOTAL_COPY_BYTES = 256 << 20  # buffers of all ranks
TAKEN_CORES = 0.15
"""Cores' worth of time from which on other programs disturb. All ranks wait for the slowest one, so
the number of ranks doesn't matter. On an idle machine it is 0 to 0.05; with 0.3 the medians of mpi
already differ by a factor."""
COPY_RATIO = 2.0
"""Ratio of the copies' upper quartile to the lower one from which on they vary."""
SLOWED_SHARE = 0.75
"""Share of the best rank's time on a core below which a rank is slowed: with one other program on
its core it gets a half."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Copying for a moment.

    Attributes:
        core_share: Share of a core that the rank got, 0 to 1.
        bytes_per_s: Bytes that it copied per second of CPU time.
    """

    core_share: float
    bytes_per_s: float


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
    copies: tuple[Copy, ...]


# -------------------------------------------------------------------------------------- in a rank


class Reading(NamedTuple):
    """Clocks at one moment: wall, CPU time of this process, time that its CPUs were busy."""

    at_s: float
    own_s: float
    busy_s: float | None


def usable_cpus() -> tuple[int, ...]:
    """Return the CPUs that this process may run on; () if the system doesn't say."""
    try:
        return tuple(sorted(os.sched_getaffinity(0)))
    except AttributeError:  # not on macOS
        return ()


def read_clocks(cpus: Collection[int]) -> Reading:
    """Return the clocks now."""
    busy = None
    with suppress(OSError, ValueError):
        busy = busy_s(Path("/proc/stat").read_text(encoding="ascii"), cpus)
    return Reading(time.perf_counter(), time.process_time(), busy)


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


def copy_for_a_moment(world_size: int) -> Copy:
    """Copy memory and return what that showed.

    Args:
        world_size: Number of ranks that do this at once.
    """
    size = min(COPY_BYTES, TOTAL_COPY_BYTES // world_size)
    source, target = bytearray(size), memoryview(bytearray(size))
    target[:] = source  # maps the pages
    copies, began, cpu_began = 0, time.perf_counter(), time.thread_time()
    while (wall_s := time.perf_counter() - began) < COPY_S:
        target[:] = source
        copies += 1
    cpu_s = time.thread_time() - cpu_began
    return Copy(min(1.0, cpu_s / wall_s), copies * size / cpu_s if cpu_s > 0 else 0.0)


def load_of(
    launch: int, cpus: tuple[int, ...], before: Reading, copies: tuple[Copy, ...]
) -> LaunchLoad:
    """Return what this rank measured since the first reading."""
    now = read_clocks(cpus)
    known = before.busy_s is not None and now.busy_s is not None
    busy = now.busy_s - before.busy_s if known else None  # type: ignore[operator]  # both are known
    return LaunchLoad(launch, cpus, now.at_s - before.at_s, now.own_s - before.own_s, busy, copies)


# ---------------------------------------------------------------------------------- in the launcher


def total_load(launches: Sequence[Sequence[LaunchLoad]], hosts: Sequence[str] = ()) -> Load | None:
    """Return the disturbance over all launches; None without any.

    Args:
        launches: What each rank measured, in rank order, for each launch.
        hosts: Host of each rank; empty if all are on one.
    """
    if not launches:
        return None
    moments = [
        copies for launch in launches for copies in zip(*(r.copies for r in launch), strict=True)
    ]
    best = [max(each.core_share for each in copies) for copies in moments]
    shares, slowed = [], []
    for rank in range(len(launches[0])):
        own = [copies[rank].core_share for copies in moments]
        shares.append(median(own))
        ends = interval(
            [share / most if most else 1.0 for share, most in zip(own, best, strict=True)]
        )
        if ends is not None and ends[1] < SLOWED_SHARE:
            slowed.append(rank)
    taken = taken_cores(launches, hosts)
    bound = len({load.cpus for load in launches[0]}) > 1
    if taken is not None and taken > TAKEN_CORES and not bound:
        slowed = []  # other programs may run beside any rank, and happened to meet this one
    return Load(
        taken,
        tuple(min(each.bytes_per_s for each in copies) for copies in moments),
        tuple(shares),
        tuple(slowed),
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
        used, lacking = min(len(ranks), len(cpus), at_once or len(ranks)), 0.0
        wall_s = sum(launch[ranks[0]].wall_s for launch in launches)
        for launch in launches:
            first = launch[ranks[0]]
            if first.busy_s is None:
                return None
            others = max(0.0, first.busy_s - sum(launch[rank].own_s for rank in ranks))
            lacking += max(0.0, others - (len(cpus) - used) * first.wall_s)
        if wall_s > 0:
            worst = max(worst or 0.0, min(used, lacking / wall_s))
    return worst


def copies_vary(load: Load) -> tuple[float, float] | None:
    """Return the quartiles of the copies' speeds if they differ too much; else None."""
    ordered = sorted(load.copies_bytes_per_s)
    low, high = quantile(ordered, 0.25), quantile(ordered, 0.75)
    return (low, high) if high > COPY_RATIO * low else None
