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


def letters(name: str) -> str:
    """Return a name's letters and digits in lower case: ``--non-blocking`` is ``nonblocking``."""
    return "".join(filter(str.isalnum, name.lower()))


def without_prefix(name: str) -> str:
    """Return a name in lower case without the prefix of its library: ``MPI_SUM`` is ``sum``."""
    name = name.lower()
    for prefix in CALL_PREFIXES:
        name = name.removeprefix(prefix)
    return name
