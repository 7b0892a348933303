"""Cores against ranks: how many this process may use, a container's quota, and threads a rank."""

from __future__ import annotations

from dataclasses import dataclass

from distdemo.doctor.seen import Seen, fine, several, warning
from distdemo.doctor.surroundings import Surroundings

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
PINS = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND")
EXAMPLE = 4  # ranks: the usual world on one machine


@dataclass(frozen=True, slots=True)
class Share:
    """What of the machine's cores this process gets.

    Attributes:
        usable: those that it may run on.
        total: all that the machine has.
        quota: cores' worth of time that its control group gets; 0 for all of it.
    """

    usable: int
    total: int
    quota: float = 0.0

    @property
    def effective(self) -> float:
        """Cores' worth of time."""
        return min(float(self.usable), self.quota or float(self.usable))


def share(around: Surroundings) -> Share:
    """Of this process."""
    usable, total = around.cores()
    return Share(usable, total, _quota(around))


def _quota(around: Surroundings) -> float:
    """The control group's, version 2, then 1; 0 if there is none."""
    words = around.text("sys/fs/cgroup/cpu.max").split()
    if len(words) == 2 and words[0].isdigit():
        return int(words[0]) / int(words[1])
    quota = around.number("sys/fs/cgroup/cpu/cpu.cfs_quota_us")
    period = around.number("sys/fs/cgroup/cpu/cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else 0.0


def cores(around: Surroundings) -> Seen:
    """How many cores there are for ranks."""
    found = share(around)
    text = str(found.usable)
    if found.usable < found.total:
        text += f" of {found.total} (an affinity mask or a cpuset)"
    facts = {"usable": found.usable, "total": found.total, "quota": found.quota}
    if found.quota and found.quota < found.usable:
        return warning(
            f"{text}, but a quota of {found.quota:g}",
            "torch counts the cores, not the quota: its threads use up the quota early in each "
            "period and then all stand still, which a waiting rank sees as a slow peer.",
            f"OMP_NUM_THREADS={max(1, int(found.quota))} or less, or a larger quota (docker run "
            "--cpus).",
            **facts,
        )
    if found.usable == 1:
        return warning(
            text,
            "Ranks take turns on it; MPI's, which wait by asking over and over, take it from "
            "those that they wait for.",
            "It does for learning. For anything else take a machine with a core a rank.",
            **facts,
        )
    return fine(text, **facts)


def threads(around: Surroundings) -> Seen:
    """How many threads each rank would start, against the cores."""
    found = share(around)
    name = next((name for name in THREADS if around.environ.get(name)), "")
    if not name:
        each = around.torch().threads
        asked = f"a rank of one's own program takes {several(each, 'thread')}, {EXAMPLE} ranks "
        return fine(f"{asked}{each * EXAMPLE}; torchrun and distdemo give each 1", threads=each)
    value = around.environ[name]
    first = value.split(",")[0].strip()
    if not first.isdigit() or int(first) < 1:
        return warning(
            f"{name}={value} is no number of threads",
            "OpenMP ignores it and takes a thread a core, in every rank.",
            f"Set {name} to the number of cores divided by that of the ranks.",
            value=value,
        )
    return _counted(name, int(first), found)


def _counted(name: str, each: int, found: Share) -> Seen:
    if each > found.effective:
        return warning(
            f"{name}={each}, and there are {found.effective:g} cores",
            "A single rank has more threads than cores; every parallel operation waits for the "
            "slowest of them.",
            f"Set {name} to {max(1, int(found.effective))} divided by the number of ranks.",
            threads=each,
        )
    most = max(1, int(found.effective // each))
    return fine(f"{name}={each}: up to {several(most, 'rank')} keep the cores busy", threads=each)


def pinning(around: Surroundings) -> Seen:
    """Variables that bind threads: every rank's to the same cores, unless the launcher does it."""
    found = {name: around.environ[name] for name in PINS if around.environ.get(name)}
    harmful = {name: value for name, value in found.items() if not _harmless(value)}
    if not harmful:
        return fine("no variable binds threads to cores")
    listed = ", ".join(f"{name}={value}" for name, value in harmful.items())
    return warning(
        listed,
        "Every rank of a machine reads the same list and binds to the same cores, while others "
        "stand idle.",
        "Unset it, or let the launcher bind each rank (mpiexec --bind-to, srun --cpu-bind, "
        "numactl).",
    )


def _harmless(value: str) -> bool:
    return value.lower() in ("false", "none", "disabled", "0")
