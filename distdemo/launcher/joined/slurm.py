"""Slurm: a task of an ``srun`` step finds its rank, and the host where the store will be.

Source: the section OUTPUT ENVIRONMENT VARIABLES of srun's manual page, and slurm.h for the step
ids that are no steps of ranks.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from distdemo.errors import UsageError
from distdemo.launcher.joined.seat import Seat
from distdemo.launcher.joined.variables import (
    ALONE,
    first_set,
    is_set,
    master,
    number,
    number_or,
    place,
    said,
    shortened,
)

VARIABLES = ("SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS")
_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")
_TASKS = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
_JOB = ("SLURM_JOB_ID", "SLURM_JOBID")
_NODES = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
_NO_STEP = 0xFFFFFFF0  # slurm.h: interactive, batch, extern and pending "steps" are numbered above
_FIRST_PORT, _PORTS = 20000, 10000
_STEP_STRIDE = 1009  # a prime: steps of jobs with near numbers don't meet at one port


def find(environ: Mapping[str, str]) -> Seat | None:
    """The seat of a task of an srun step; None outside of one.

    A batch script, a shell of ``salloc`` and one of ``srun --pty`` have most of the variables,
    but are no ranks.

    Raises:
        UsageError: the variables are of a step, but contradict themselves.
    """
    if not _in_a_step(environ):
        return None
    tasks = first_set(environ, _TASKS) or _TASKS[0]
    rank, size = place(environ, "SLURM_PROCID", tasks)
    node = number_or(environ, "SLURM_NODEID", -1)
    host, port = master(environ)
    return Seat(
        engine="slurm",
        rank=rank,
        world_size=size,
        local_rank=number_or(environ, "SLURM_LOCALID", 0),
        local_size=_tasks_on(environ, node),
        node=node,
        master=host or _first_host(environ),
        port=port or port_of(environ),
        job=f"{_job(environ)}.{environ[first_set(environ, _STEP)].strip()}",
        why=said(("SLURM_PROCID", first_set(environ, _STEP), tasks)),
    )


def port_of(environ: Mapping[str, str]) -> int:
    """The port of the store, the same for all tasks of a step, from 20000 to 29999.

    It is 20000 + (SLURM_JOB_ID + 1009 × SLURM_STEP_ID) mod 10000: below the ports that Linux
    hands out by itself, and different for steps that run side by side on one host, unless their
    numbers are far apart. MASTER_PORT names another one.

    Raises:
        UsageError: there is no job id.
    """
    step = number(environ, first_set(environ, _STEP))
    return _FIRST_PORT + (_job(environ) + _STEP_STRIDE * step) % _PORTS


def is_shell(environ: Mapping[str, str]) -> bool:
    """Whether this process runs in a shell that Slurm gave a terminal, as one task alone."""
    step = environ.get(first_set(environ, _STEP), "").strip()
    if not is_set(environ, "SLURM_PROCID") or not step.isdecimal():
        return False
    alone = environ.get(first_set(environ, _TASKS), "").strip() == "1"
    return int(step) >= _NO_STEP or (alone and is_set(environ, "SLURM_PTY_PORT"))


def _in_a_step(environ: Mapping[str, str]) -> bool:
    """Whether srun started this process as one of its tasks."""
    step = environ.get(first_set(environ, _STEP), "").strip()
    return is_set(environ, "SLURM_PROCID") and step.isdecimal() and not is_shell(environ)


def _job(environ: Mapping[str, str]) -> int:
    return number(environ, first_set(environ, _JOB) or _JOB[0])


def _tasks_on(environ: Mapping[str, str], node: int) -> int:
    """How many tasks of the step are on this host, from ``2(x3),1``; 0 if Slurm does not tell."""
    text = environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    counts: list[int] = []
    for found in re.finditer(r"(\d+)(?:\(x(\d+)\))?", text):
        hosts = min(int(found[2] or 1), node + 1)  # no more of them than are looked at
        counts += [int(found[1])] * hosts
    return counts[node] if 0 <= node < len(counts) else 0


# ------------------------------------------------------------------------------------- host lists


def _first_host(environ: Mapping[str, str]) -> str:
    """The host of rank 0: Slurm puts the first task on the first host of the step.

    Raises:
        UsageError: no list of hosts is set, or it can't be read.
    """
    name = first_set(environ, _NODES)
    if not name:
        raise UsageError(
            f"This is a task of a Slurm step, but {_NODES[0]} is not set.",
            "The host where the ranks meet is the first one of that list.",
            f"Set MASTER_ADDR to the host of rank 0. {ALONE}",
        )
    host = next(hosts(environ[name].strip()), "")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", host):
        raise UsageError(
            f"{name} is {shortened(environ[name])}.",
            "It is a list of hosts, such as node[01-04,07],gpu3.",
            f"Set MASTER_ADDR to the host of rank 0. {ALONE}",
        )
    return host


def hosts(text: str) -> Iterator[str]:
    """The hosts of a list as Slurm writes it, one after the other, as they are asked for.

    ``node[01-04,7],gpu3`` is node01, node02, node03, node04, node7 and gpu3. A name may have
    several brackets (``rack[0-1]n[1-2]``: the last one counts fastest), also one in another. A
    list that can't be read has no hosts from there on.
    """
    for part in _split(text):
        yield from _expanded(part)


def _split(text: str) -> list[str]:
    """The parts of a list between the commas (or spaces) that are in no bracket."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth == 0 and letter in ", \t\n":
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part]


def _expanded(part: str) -> Iterator[str]:
    """The names that one part stands for."""
    start = part.find("[")
    if start < 0:
        yield part
        return
    end = _closing(part, start)
    if end is None:
        return
    for middle in _bracket(part[start + 1 : end]):
        for rest in _expanded(part[end + 1 :]):
            yield part[:start] + middle + rest


def _closing(part: str, start: int) -> int | None:
    """Where the bracket ends that is opened at ``start``; None if it never does."""
    depth = 0
    for at, letter in enumerate(part[start:], start):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth == 0:
            return at
    return None


def _bracket(inside: str) -> Iterator[str]:
    """What stands within a bracket: ranges, whose leading zeros count, and names."""
    for item in _split(inside):
        ends = re.fullmatch(r"(\d+)-(\d+)", item)
        if ends is None:
            yield from _expanded(item)
            continue
        numbers = itertools.takewhile(int(ends[2]).__ge__, itertools.count(int(ends[1])))
        yield from (f"{each:0{len(ends[1])}}" for each in numbers)
