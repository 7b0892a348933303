"""Find the ranks of the jobs that run on this node, by what the system says about processes.

Ranks that a launcher started have ``RANK`` and ``MASTER_PORT`` in the environment that they began
with. Ranks of ``mp.spawn`` set these later, which can't be seen: they are processes of one parent
that are connected to each other. Nothing is written, stopped or signalled.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from distdemo.errors import UsageError
from distdemo.platform import system
from distdemo.view.foreign import one_line
from distdemo.view.format import listing, plural, ranks_text

MAX_RANKS = 1 << 14
MAX_LISTED = 8  # jobs in an error
VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
    *("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "NCCL_RAS_ADDR"),
)
_LOOPBACK = re.compile(r"localhost|127\.[\d.]+|::1")
_NUMBER = re.compile(r"\d{1,5}")
_LAUNCHER = re.compile(r"(?:^|/)(?:torchrun|torch\.distributed\.(?:run|launch))$")
_PYTHON = re.compile(r"(?:^|/)[Pp]ython[\d.]*$")
_TORCH = "libtorch_cpu."  # .so, or .dylib


@dataclass(frozen=True, slots=True)
class Process:
    """Process of this machine.

    Attributes:
        started: Time of its start, in seconds.
        variables: Those of `VARIABLES` that it began with.
    """

    pid: int
    parent: int
    started: float
    user: int
    words: tuple[str, ...]
    variables: Mapping[str, str]

    def number(self, name: str) -> int | None:
        """Return the value of a variable, if it is a number that a rank or port can have."""
        value = self.variables.get(name, "")
        return int(value) if _NUMBER.fullmatch(value) else None


@dataclass(frozen=True, slots=True)
class LiveJob:
    """Job that runs on this node.

    Attributes:
        name: ``MASTER_ADDR:MASTER_PORT``, or the process that started the ranks.
        port: Port of its rendezvous; 0 if unknown.
        world_size: Number of ranks; 0 if unknown.
        ranks: Processes of its ranks on this node, by rank.
        gone: Ranks that belong to this node and have no process.
        is_ordered: True if the ranks' numbers are inferred from the order of their start.
        above: Processes that started it, directly or not.
        program: Name of its program.
    """

    name: str
    port: int
    world_size: int
    ranks: Mapping[int, Process]
    gone: tuple[int, ...]
    is_ordered: bool
    above: frozenset[int]
    program: str

    def has(self, number: int) -> bool:
        """Return True if this is its port, or a process of it or above it."""
        pids = {process.pid for process in self.ranks.values()}
        return number == self.port or number in pids or number in self.above

    def __str__(self) -> str:
        ranks = f"rank{'s' * (len(self.ranks) > 1)} {ranks_text(tuple(self.ranks))}"
        number = self.port or next(iter(self.ranks.values())).parent
        return f"--job {number} ({self.program}, {ranks})"


def choose_job(number: int | None) -> LiveJob:
    """Return the job with this port or process; the only one of this user if None.

    Raises:
        UsageError: There is none, or there are several.
    """
    user = os.geteuid()
    processes = read_processes()
    everyone = {pid: p for pid, p in processes.items() if number is not None or p.user == user}
    jobs = [job for job in find_jobs(everyone) if number is None or job.has(number)]
    if number is not None and not jobs:
        jobs = [*_children_as_ranks(everyone, number)]
    if len(jobs) == 1:
        return jobs[0]
    if jobs:
        listed = listing([str(job) for job in jobs[:MAX_LISTED]], "or")
        left = len(jobs) - MAX_LISTED
        more = f", and {plural(left, 'more job')}" if left > 0 else ""
        what = f"{plural(len(jobs), 'job')} of yours run on this node."
        raise UsageError(what, "A verdict is on one job.", f"Choose one: {listed}{more}.")
    owner = None if number is None else system.owner(number)
    if owner not in (None, user) and user != 0:
        raise UsageError(
            f"Process {number} belongs to another user.",
            "Only that user and root can read its environment and its stack. All that can be read "
            f"is its state: {system.about(number or 0, 'status') or 'ended'}.",
            f"Ask the user, or root: sudo distdemo postmortem --live --job {number}.",
        )
    if unread := _unread_programs(user):
        pids = listing([str(pid) for pid in unread[:MAX_LISTED]])
        raise UsageError(
            f"The environment of {plural(len(unread), 'process')} that may be ranks can't be read.",
            f"The kernel denies it, also to their user: {pids}.",
            "Run this as root on the host, or give the container the capability SYS_PTRACE.",
        )
    if number is None:
        raise UsageError(
            "No job of yours runs on this node.",
            "No process began with RANK and MASTER_PORT, and none are ranks of mp.spawn that have "
            "connected to each other.",
            "Name the process that started the ranks, also of another user: --job PID.",
        )
    whose = "" if user == 0 else " of yours"
    sudo = f" Of another user: sudo distdemo postmortem --live --job {number}." if whose else ""
    raise UsageError(
        f"There is no job {number}{whose} on this node.",
        "It is neither the MASTER_PORT of ranks, nor a rank, nor a process that started ranks.",
        f"Leave out --job to see the jobs.{sudo}",
    )


def find_jobs(processes: Mapping[int, Process]) -> list[LiveJob]:
    """Return the jobs of these processes."""
    spawned = [*_spawned_jobs(processes)]
    pids = {process.pid for job in spawned for process in job.ranks.values()}
    inside = {pid for pid in processes if pids.intersection(ancestors(processes, pid))}
    return [*_launched_jobs(processes, {*pids, *inside}), *spawned]


def read_processes() -> dict[int, Process]:
    """Return the processes whose environment can be read."""
    found = {}
    for pid, parent, started, user, words, environ in system.processes():
        if environ is None:
            continue
        variables = {name: environ[name] for name in VARIABLES if name in environ}
        found[pid] = Process(pid, parent, started, user, words or ("",), variables)
    return found


def ancestors(processes: Mapping[int, Process], pid: int) -> Iterator[int]:
    """Yield the processes above one, up to the first that isn't known."""
    seen = {pid}
    while pid in processes and (pid := processes[pid].parent) not in seen:
        seen.add(pid)
        yield pid


def is_python(pid: int) -> bool:
    """Return True if a process runs Python, or has loaded torch."""
    name = system.about(pid, "exe").rpartition("/")[2].lower()  # Python.app on macOS
    return name.startswith("python") or system.has_loaded(_TORCH, pid)


def _unread_programs(user: int) -> list[int]:
    """Return this user's processes, or root's all, whose Python's environment the system hides."""
    return [
        process.pid
        for process in system.processes()
        if process.environ is None
        and _PYTHON.search("".join(process.words[:1]))
        and user in (0, process.user)
    ]


# ------------------------------------------------------------------------- started by a launcher


def _launched_jobs(
    processes: Mapping[int, Process], excluded: Collection[int]
) -> Iterator[LiveJob]:
    """Yield the jobs whose ranks began with ``RANK`` and ``MASTER_PORT``.

    Data-loader workers and other children inherit both: a rank is the topmost Python process.
    """
    own = {os.getpid(), *ancestors(processes, os.getpid())}
    ranks: dict[tuple[str, str], dict[int, Process]] = defaultdict(dict)
    for process in processes.values():
        key = _key(process)
        if key is None or process.pid in excluded or process.pid in own:
            continue
        over = (processes[pid] for pid in ancestors(processes, process.pid) if pid in processes)
        if is_python(process.pid) and not any(_key(p) == key and is_python(p.pid) for p in over):
            address, port, rank = key
            older = ranks[address, port].get(rank, process)
            ranks[address, port][rank] = min(process, older, key=lambda p: p.started)
    for (address, port), found in ranks.items():
        sizes = [process.number("WORLD_SIZE") or 0 for process in found.values()]
        expected: set[int] = set()
        for rank, process in found.items():
            local, size = process.number("LOCAL_RANK"), process.number("LOCAL_WORLD_SIZE")
            if local is not None and size is not None and size <= MAX_RANKS:
                expected |= {*range(rank - local, rank - local + size)}
            elif _LOOPBACK.fullmatch(address):
                expected |= {*range(min(max(sizes), MAX_RANKS))}
        gone = tuple(sorted(expected - found.keys()))
        above = frozenset(pid for p in found.values() for pid in ancestors(processes, p.pid))
        ordered = dict(sorted(found.items()))
        program = _program(next(iter(ordered.values())))
        name = f"{address}:{port}"
        yield LiveJob(name, int(port), max(sizes), ordered, gone, False, above - {1}, program)


def _program(process: Process) -> str:
    """Return the name of a process's script, or of its program."""
    words = process.words
    name = next((word for word in words[1:] if word.endswith(".py")), words[0])
    return one_line(name.rpartition("/")[2])


def _key(process: Process) -> tuple[str, str, int] | None:
    if any(_LAUNCHER.search(word) for word in process.words[:5]):
        return None  # RANK is the number of its node, if a script has set it
    rank = process.number("RANK")
    port = process.number("MASTER_PORT")
    if rank is None or port is None or rank >= MAX_RANKS:
        return None
    return process.variables.get("MASTER_ADDR", ""), str(port), rank


# ------------------------------------------------------------------------------ started by mp.spawn


def _spawned_jobs(processes: Mapping[int, Process]) -> Iterator[LiveJob]:
    """Yield the jobs whose ranks are children of one process and connected to each other."""
    for parent, children in _families(processes).items():
        sockets = system.tcp_sockets([*(child.pid for child in children), parent])
        inherited = sockets.pop(parent)
        own = {pid: [s[key] for key in s.keys() - inherited] for pid, s in sockets.items()}
        ends = {(end.local, end.remote): pid for pid, found in own.items() for end in found}
        partners = {
            pid for (local, remote), pid in ends.items() if ends.get((remote, local), pid) != pid
        }
        callers: dict[int, set[int]] = defaultdict(set)  # of each port, also its own process
        for pid, found in own.items():
            for end in found:
                callers[end.remote[1]].add(pid)
        listening = {end.local[1] for found in own.values() for end in found if end.listens}
        met = [port for port in listening if callers[port] == own.keys()]
        given = {child.number("MASTER_PORT") or 0 for child in children}
        given -= {processes[parent].number("MASTER_PORT")}  # a shell's, which all inherit
        port = given.pop() if len(given) == 1 else 0
        if partners or met or port:  # every rank connects to the store, rank 0 to its own
            port = port or (met[0] if len(met) == 1 else 0)
            yield _spawned_job(processes, parent, children, port)


def _children_as_ranks(processes: Mapping[int, Process], number: int) -> Iterator[LiveJob]:
    """Yield the children of this process, or its siblings, as ranks: the user says that they are.

    They may not have met yet, or may have met through a file, which nothing shows.
    """
    for parent, children in _families(processes).items():
        if number == parent or number in {child.pid for child in children}:
            yield _spawned_job(processes, parent, children, 0)


def _spawned_job(
    processes: Mapping[int, Process], parent: int, children: list[Process], port: int
) -> LiveJob:
    ranks = dict(enumerate(sorted(children, key=lambda child: (child.started, child.pid))))
    above = frozenset({parent, *ancestors(processes, parent)} - {1})
    name = f"port {port}" if port else f"process {parent}"
    program = _program(processes[parent])
    return LiveJob(name, port, len(ranks), ranks, (), True, above, program)


def _families(processes: Mapping[int, Process]) -> dict[int, list[Process]]:
    """Return the Python processes that multiprocessing started, by parent; at least two of each."""
    families: dict[int, list[Process]] = defaultdict(list)
    for process in processes.values():
        parent = processes.get(process.parent)
        if parent is None or _key(process) is not None or _key(parent) is not None:
            continue
        is_forked = process.words == parent.words
        is_spawned = any("multiprocessing.spawn" in word for word in process.words[1:4])
        if (is_forked or is_spawned) and is_python(process.pid):
            families[parent.pid].append(process)
    return {parent: children for parent, children in families.items() if len(children) > 1}
