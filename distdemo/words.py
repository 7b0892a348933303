"""Names that people know from PyTorch, MPI, NCCL and their launchers, and what they mean here."""

from __future__ import annotations

CALL_PREFIXES = ("torch.distributed.", "torch.", "dist.", "reduceop.", "mpi_", "nccl")
"""Prefixes of the names of calls, dtypes and reduce ops in torch, MPI and NCCL."""
OPS = {
    "bcast": "broadcast",
    "sendrecv": "p2p",
    "allgatherv": "all_gather --uneven",
    "alltoallv": "all_to_all --uneven",
}
"""Operations of MPI and NCCL, as torch's names with the flags that select the form."""
COMMANDS = {
    **dict.fromkeys(("all_reduce_perf", "osu_allreduce"), "bench all-reduce"),
    **dict.fromkeys(("broadcast_perf", "osu_bcast"), "bench broadcast"),
    **dict.fromkeys(("reduce_perf", "osu_reduce"), "bench reduce"),
    **dict.fromkeys(("all_gather_perf", "osu_allgather"), "bench all-gather"),
    **dict.fromkeys(("reduce_scatter_perf", "osu_reduce_scatter"), "bench reduce-scatter"),
    **dict.fromkeys(("alltoall_perf", "osu_alltoall"), "bench all-to-all"),
    **dict.fromkeys(("gather_perf", "osu_gather"), "bench gather"),
    **dict.fromkeys(("scatter_perf", "osu_scatter"), "bench scatter"),
    **dict.fromkeys(("sendrecv_perf", "osu_latency", "osu_bw"), "bench p2p"),
    "osu_barrier": "bench barrier",
}
"""Commands for the programs of nccl-tests and the OSU benchmarks."""
HINTS = {
    "new_group": "Try distdemo all-reduce --group 0,1.",
    "ring": "Try distdemo p2p --pattern ring, or distdemo trace all-reduce.",
    "torchrun": "Try distdemo run FILE.py -n 4.",
}
"""What to try for a name that isn't a command."""
OPTIONS = {
    **dict.fromkeys(
        ("-np", "--np", "--nproc", "--nproc-per-node", "--ntasks", "--nranks"), "--world-size"
    ),
    **dict.fromkeys(("-g", "--gpus", "--ngpus"), "--world-size"),
    **dict.fromkeys(("--master-addr", "--rdzv-endpoint"), "--master"),
    **dict.fromkeys(("--async-op", "--nonblocking"), "--async"),
    **dict.fromkeys(("--op", "--redop"), "--reduce-op"),
    "--datatype": "--dtype",
    "--algo": "--algorithm",
    "--json": "--format=json",
    "--no-sanitize": "--sanitize=off",
}
"""Options for the names in torchrun, mpiexec, srun and nccl-tests, if the command has them."""
IMPLIED_VALUES = {"--check-replicas": "--check-replicas=1", "--sanitize": "--sanitize=calls"}
"""Options whose value may be left out; a value follows after "="."""
VALUES = {"gpu": "cuda"}
"""Other names of values."""


def find(names: dict[str, str], word: str) -> str:
    """Return the meaning of a word in a table, in any spelling; empty if it has none."""
    return next((names[name] for name in names if letters(name) == letters(word)), "")


def letters(name: str) -> str:
    """Return a name's letters and digits in lower case: ``--non-blocking`` is ``nonblocking``."""
    return "".join(filter(str.isalnum, name.lower()))


def without_prefix(name: str) -> str:
    """Return a name in lower case without the prefix of its library: ``MPI_SUM`` is ``sum``."""
    name = name.lower()
    for prefix in CALL_PREFIXES:
        name = name.removeprefix(prefix)
    return name
