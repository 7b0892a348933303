"""Names that people know from PyTorch, MPI, NCCL and their launchers, and what they mean here."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable
from pathlib import PurePath
from typing import NamedTuple

CALL_PREFIXES = ("torch.distributed.", "torch.", "dist.", "reduceop.", "mpi_", "nccl")
"""Prefixes of the names of calls, dtypes and reduce ops in torch, MPI and NCCL."""
COMMANDS = {"ops": "explain"}
"""Other names of commands."""
FLAGS = {"help": "--help", "version": "--version"}
"""Flags that can be typed as a command, before the words that they belong to."""
OPS = {
    "bcast": "broadcast",
    "sendrecv": "p2p",
    "allgatherv": "all_gather --uneven",
    "alltoallv": "all_to_all --uneven",
    "_all_gather_base": "all_gather --variant single",
    "_reduce_scatter_base": "reduce_scatter --variant single",
    "send_object_list": "p2p --objects",
    "ring": "p2p --pattern ring",
    "exchange": "p2p --pattern exchange",
}
"""Operations of MPI and NCCL, torch's former and further names, and patterns, as torch's names with
the flags that select the form."""
ALGORITHMS = {
    "binomial": "tree",
    "binomial-tree": "tree",
    "butterfly": "doubling",
    "linear": "flat",
    "parameter-server": "aggregator",
    "pipeline": "chain",
    "rabenseifner": "halving-doubling",
    "recursive-doubling": "doubling",
    "recursive-halving": "halving",
    "tree": "binary-tree",
}
"""Other names of algorithms, for operations whose algorithms don't have this name."""
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
    "--standalone": "--launcher=local",
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


class Hint(NamedTuple):
    """Answer to a name that people know, but that is no command here.

    Attributes:
        names: Names, separated by commas; one that begins with a dot is a file's suffix.
        answer: What there is instead, as a sentence.
        line: Command line to try; ``{}`` is the name as typed.
    """

    names: str
    answer: str
    line: str

    def filled(self, typed: str) -> tuple[str, str]:
        """Return the answer, and the command line with the name as typed."""
        return self.answer, self.line.format(shlex.quote(typed))


_HINTS = (
    # to learn and to teach
    Hint(
        "quickstart, start, intro, demo, getting-started, init_process_group, get_rank, "
        "destroy_process_group, get_world_size, is_initialized, whoami, ping",
        "hello starts ranks that join a process group, and hear from each other.",
        "distdemo hello",
    ),
    Hint(
        "exercise, exercises, homework, quiz, assignment, practice",
        "learn --write FOLDER writes exercises with tests, a notebook and slides.",
        "distdemo learn --write exercises",
    ),
    Hint(
        "class, classroom, lecture, lecturer, teach, teacher, workshop, solutions, slide, slides",
        "learn --write FOLDER --solutions writes slides, a notebook and exercises for a class.",
        "distdemo learn --write class --solutions",
    ),
    Hint(
        "tutorial, lesson, lessons, course, guide, concepts",
        "learn leads from broadcast to DDP: predict, run, compare.",
        "distdemo learn",
    ),
    Hint(
        "example, examples, sample, code, template, snippet",
        "explain OP --code prints a program that makes the call, for torchrun.",
        "distdemo explain scatter --code",
    ),
    Hint(
        "notebook, notebooks, jupyter, ipynb, colab",
        "learn --write FOLDER writes a notebook; in your own: %load_ext distdemo, then %%ranks 4.",
        "distdemo learn --write class",
    ),
    Hint(
        "ipython, python, repl, console, interactive",
        "shell runs each line that you type on every rank.",
        "distdemo shell",
    ),
    Hint(
        "expect, xfail, fails",
        "A comment # fails marks a line of the shell that is meant to fail.",
        "distdemo shell",
    ),
    Hint(
        "picture, image, figure, draw, plot, png, svg",
        "Every command writes its result as a picture with --output FILE.svg or FILE.png.",
        "distdemo scatter --output scatter.svg",
    ),
    Hint(
        "animate, animation, visualize, visualise, viz, play, video, gif, html, rounds",
        "trace shows a collective round by round; --output ring.html plays it in a browser.",
        "distdemo trace --animate",
    ),
    Hint(
        "tree, binary-tree, doubling, halving-doubling, recursive-doubling, rabenseifner, "
        "butterfly, naive-ring, aggregator, parameter-server",
        "trace shows an algorithm round by round.",
        "distdemo trace --algorithm {}",
    ),
    Hint(
        "algorithm, algorithms, algo, algos, cost, costs, formula, formulas, complexity, list",
        "trace list has the algorithms with their formulas.",
        "distdemo trace list",
    ),
    Hint(
        "collective, collectives, operation, operations, op",
        "explain lists the operations, and draws one.",
        "distdemo explain",
    ),
    # calls and arguments of torch.distributed and MPI
    Hint(
        "sum, mean, avg, average, max, maximum, min, minimum, product, prod",
        "The reduce operation is an option of the collectives that combine.",
        "distdemo all-reduce --reduce-op {}",
    ),
    Hint(
        "ReduceOp, reduction",
        "The reduce operation is an option of the collectives that combine.",
        "distdemo all-reduce --reduce-op max",
    ),
    Hint(
        "new_group, new_subgroups, split_group, group, groups, subgroup, process_group, comm_split",
        "--group creates a group of some ranks and runs an operation in it.",
        "distdemo all-reduce --group 0,2",
    ),
    Hint(
        "wait, work, async, async_op, nonblocking, overlap",
        "--async makes the call with async_op=True, and waits for its handle.",
        "distdemo all-reduce --async",
    ),
    Hint(
        "scan, exscan, cumsum, prefix-sum",
        "torch.distributed has no scan: gather all tensors, and add those of lower ranks.",
        "distdemo all-gather",
    ),
    Hint(
        "gatherv, scatterv",
        "torch's gather and scatter take equal sizes; all-gather and all-to-all have --uneven.",
        "distdemo all-gather --uneven",
    ),
    Hint("sync, synchronize", "No rank continues until all have arrived.", "distdemo barrier"),
    Hint(
        "rpc_sync, rpc_async, remote, rref",
        "rpc calls functions on other workers.",
        "distdemo rpc",
    ),
    # programs and launchers
    Hint(".py", "run starts a program on every rank.", "distdemo run {}"),
    Hint(
        "torchrun, launch, launcher, elastic, spawn, script, program, fsdp, fsdp2, fully_shard, "
        "hsdp, deepspeed, megatron, lightning, accelerate, dtensor, device_mesh, init_device_mesh",
        "run starts your own program on every rank, as torchrun does.",
        "distdemo run train.py -n 4",
    ),
    Hint(
        "mpirun, mpiexec, srun, sbatch, slurm, cluster, nodes, multinode",
        "Under mpiexec, srun or torchrun, the ranks run one distdemo command together.",
        "mpiexec -n 4 distdemo hello",
    ),
    Hint(
        "ddp, DistributedDataParallel, data-parallel, dataparallel, gradients",
        "train trains a model with DDP and with plain all-reduces, and compares them.",
        "distdemo train",
    ),
    Hint(
        "debug, debugger, sanitize, sanitizer, detect, mismatch",
        "run compares the calls of all ranks, and names the rank and line at fault.",
        "distdemo run train.py -n 4",
    ),
    Hint(
        "profile, profiler, timeline, perfetto, record",
        "run --record writes a timeline of every rank's calls, for Perfetto.",
        "distdemo run train.py -n 4 --record timeline.json",
    ),
    Hint(
        "flight-recorder, dump, dumps, stacks, crash, logs, timeout",
        "postmortem reads what a hung or crashed job left behind.",
        "distdemo postmortem FOLDER",
    ),
    Hint(
        "seed, replicas, drift, diverge, equal, same",
        "parity runs a program on one rank and on N, and compares the tensors.",
        "distdemo parity train.py -n 4",
    ),
    Hint(
        "pytest, unittest, testing, fixture",
        "@pytest.mark.ranks(4) runs a test on four ranks.",
        "pytest tests",
    ),
    Hint(
        "bug, bugs, pitfalls, wrong, hang, hangs, stuck, deadlock, race, races",
        "mistakes runs common bugs; run names the rank and line in your own program.",
        "distdemo mistakes",
    ),
    # this machine
    Hint(
        "test, tests, verify, validate, selftest, smoke, correctness, ci, junit",
        "Every run is verified; check verifies every operation, form and type.",
        "distdemo check",
    ),
    Hint(
        "env, environment, info, status, diagnose, collect_env, network, install, setup",
        "doctor checks what worlds need: network, memory, torch, MPI, GPUs.",
        "distdemo doctor",
    ),
    Hint(
        "gloo, nccl, mpi, ucc",
        "The backend is an option; distdemo backends lists those that work here.",
        "distdemo all-reduce --backend {}",
    ),
    Hint(
        "gpu, gpus, cuda, device",
        "The device is an option; distdemo doctor looks for GPUs.",
        "distdemo all-reduce --device cuda",
    ),
    Hint(
        "benchmark, benchmarks, perf, performance, speed, bandwidth, busbw, algbw, throughput, "
        "measure, timing, nccl-tests, osu, imb, imb-mpi1",
        "bench measures an operation over sizes; -b, -e and -f are those of nccl-tests.",
        "distdemo bench all-reduce",
    ),
    Hint(
        "latency, bw, bibw",
        "bench p2p measures messages between two ranks.",
        "distdemo bench p2p",
    ),
    Hint(
        "links, topology, nvlink, pairs",
        "bench links measures every pair of ranks.",
        "distdemo bench links",
    ),
    Hint(
        "compare, diff, regression",
        "bench compare tells changes from noise.",
        "distdemo bench compare old.json new.json",
    ),
    Hint(
        "fit, model, predict, scaling",
        "bench fit predicts larger worlds from measurements.",
        "distdemo bench fit two.json four.json --predict 64",
    ),
)
HINTS = {
    name if name.startswith(".") else letters(name): hint
    for hint in _HINTS
    for name in hint.names.split(", ")
}
"""Hints by the letters of the names, or by the suffix of a file."""
BENCHMARK = Hint(
    "",
    "bench has the -b, -e and -f of nccl-tests; -n is the number of ranks.",
    "distdemo bench {}",
)
"""Hint for the programs of nccl-tests and OSU: ``all_reduce_perf``, ``osu_allreduce``."""
MOST = 4
"""Names that one beginning can mean."""
LEAST = 3
"""Letters of the beginning of a name that is recognised."""


def hint(name: str) -> tuple[str, str] | None:
    """Return an answer and a command line for a name of another tool or of a wish, or None."""
    bare = without_prefix(name)
    measured = bare.removeprefix("osu_").removesuffix("_perf")
    for typed in (name, bare, measured):
        if letters(typed) in HINTS:
            return HINTS[letters(typed)].filled(typed)
    suffix = PurePath(name.partition(":")[0]).suffix
    if suffix in HINTS:
        return HINTS[suffix].filled(name)
    return None if measured == bare else BENCHMARK.filled(measured)


def closest(name: str, names: Iterable[str], others: Iterable[str] = ()) -> list[str]:
    """Return the names that are probably meant; only letters and digits count.

    These are the names that begin so, or the one closest to a typo, or the one that is extended:
    ``all_reduce_coalesced`` extends ``all-reduce``.

    Args:
        name: Name as typed.
        names: Names to suggest.
        others: More names, which are suggested only for a typo.
    """
    known = {letters(known): known for known in names}
    every = {letters(other): other for other in others} | known
    word = letters(name)
    if word in every:
        return [every[word]]
    begun = [full for key, full in known.items() if len(word) >= LEAST and key.startswith(word)]
    if begun:
        return begun[:MOST]
    typos = difflib.get_close_matches(word, every, 1, 0.7)
    if typos:
        return [every[typos[0]]]
    parts = re.split(r"[^a-z0-9]+", name.lower())
    beginnings = ("".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
    return [known[beginning] for beginning in beginnings if beginning in known][:1]
