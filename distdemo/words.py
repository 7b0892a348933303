"""Names that people know from PyTorch, MPI, NCCL and their launchers, and what they mean here.

A name that could mean two things is in `SUGGESTED`: it is never carried out, only suggested.
"""

from __future__ import annotations

CALL_PREFIXES = ("torch.distributed.", "torch.", "dist.", "reduceop.", "mpi_", "nccl")
"""Prefixes of the names of calls, dtypes and reduce ops in torch, MPI and NCCL."""
OPS = {
    "bcast": "broadcast",
    "sendrecv": "p2p",
    "allgatherv": "all_gather --uneven",
    "alltoallv": "all_to_all --splits",
}
"""Operations of MPI and NCCL, as torch's names with the flags that select the form."""
BENCH_SUFFIX = "_perf"
"""Last letters of nccl-tests' programs: ``all_reduce_perf`` is ``bench all-reduce``."""

LAUNCHERS = ("torchrun", "mpiexec", "mpirun", "srun", "python", "python3")
"""Programs that ``run`` replaces: ``run torchrun x.py`` is ``run x.py``."""
COMMANDS = {
    **dict.fromkeys(LAUNCHERS, "run"),
    **dict.fromkeys(("list", "ls", "operations", "collectives"), "ops"),
    **dict.fromkeys(("env", "info", "collect-env"), "doctor"),
    **dict.fromkeys(("benchmark", "perf"), "bench"),
    **dict.fromkeys(("lesson", "tutorial"), "learn"),
    "ddp": "train --mode ddp",
    "version": "--version",
    "completion": "--show-completion",
}
"""Command for each word that people type."""
LAUNCHER_OPTIONS = {
    **dict.fromkeys(
        ("-np", "--np", "--nproc", "--nproc-per-node", "--ntasks", "--num-processes"),
        "--world-size",
    ),
    **dict.fromkeys(("--master-addr", "--rdzv-endpoint"), "--master"),
    "--json": "--format json",
    "--no-sanitize": "--sanitize=off",
}
"""Options that can't be meant for the user's program, so that ``run`` understands them, too."""
OPTIONS = LAUNCHER_OPTIONS | {
    **dict.fromkeys(("--nranks", "--num-ranks", "--world", "--procs"), "--world-size"),
    **dict.fromkeys(("-g", "--gpus", "--ngpus", "--num-gpus"), "--device cuda --world-size"),
    **dict.fromkeys(("--async-op", "--nonblocking"), "--async"),
    **dict.fromkeys(("--op", "--redop"), "--reduce-op"),
    **dict.fromkeys(("--dest", "--destination"), "--dst"),
    **dict.fromkeys(("--count", "--numel"), "--shape"),
    **dict.fromkeys(("--datatype", "--data-type"), "--dtype"),
    **dict.fromkeys(("--iterations", "--niters"), "--iters"),
    "--source": "--src",
    "--algo": "--algorithm",
}
"""Options for each word that people type, if the command has them."""
IMPLIED_VALUES = {"--check-replicas": "1", "--sanitize": "calls", "--splits": "auto"}
"""Value of an option that is given without one."""

VALUES = {"gpu": "cuda"}
"""Values of options, where they have a choice of this name."""

SUGGESTED = {
    "demo": ("hello", "all-reduce"),
    "ring": ("p2p --pattern ring", "trace --algorithm ring"),
    "test": ("check", "run"),
    "examples": ("explain", "ops"),
    **dict.fromkeys(("openmpi", "mpich", "mvapich"), ("mpi",)),
    "--size": ("--sizes", "--shape"),
    "--count": ("--sizes",),
    "-N": ("--nnodes",),
    "--nodes": ("--nnodes",),
    "--master-port": ("--master",),
    "--idle": ("--stall", "--timeout"),
    "--write": ("--output",),
}
"""Suggestions for a name without a certain meaning, if the command has them."""


def letters(name: str) -> str:
    """Return a name's letters and digits in lower case: ``--non-blocking`` is ``nonblocking``."""
    return "".join(filter(str.isalnum, name.lower()))


def without_prefix(name: str) -> str:
    """Return a name in lower case without the prefix of its library: ``MPI_SUM`` is ``sum``."""
    name = name.lower()
    for prefix in CALL_PREFIXES:
        name = name.removeprefix(prefix)
    return name
