"""Words that people know from PyTorch, MPI, NCCL and their launchers, and what to use instead."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable
from pathlib import PurePath
from typing import Literal, NamedTuple

CALL_PREFIXES = ("torch.distributed.", "torch.", "dist.", "reduceop.", "mpi_", "nccl")
"""Prefixes of the names of calls, dtypes and reduce ops in torch, MPI and NCCL."""
Kind = Literal["command", "flag", "operation", "algorithm", "option", "similar", "hint", "topic"]
"""Use of a word. A flag is typed as a command, before the words that it belongs to. Three
kinds aren't understood, only suggested: an option that is similar, a hint's command line, and a
topic's, which is the answer to a question about another name of a command or an operation."""
OPENINGS = (
    *("what", "what's", "how", "why", "when", "which", "who", "where"),
    *("can", "does", "is", "show", "tell"),
)
"""Words that a question or a request begins with."""


def letters(name: str) -> str:
    """Return a name's letters and digits in lower case: ``--non-blocking`` is ``nonblocking``."""
    return "".join(filter(str.isalnum, name.lower()))


def without_prefix(name: str) -> str:
    """Return a name in lower case without the prefix of its library: ``MPI_SUM`` is ``sum``."""
    name = name.lower()
    for prefix in CALL_PREFIXES:
        name = name.removeprefix(prefix)
    return name


class Word(NamedTuple):
    """Words with one meaning.

    Attributes:
        names: The words, separated by commas; one that begins with a dot is a file's suffix, a
            hint that begins with dashes is only an option.
        instead: What to type instead; ``{}`` is the word as typed. An option applies only to
            commands that have it, an algorithm to operations that have none of the typed name.
        answer: What there is instead, as a sentence; by default the help of the command.
        kind: What the words are used as.
    """

    names: str
    instead: str
    answer: str = ""
    kind: Kind = "hint"

    def filled(self, typed: str) -> Word:
        """Return the meaning of the word as typed."""
        return self._replace(instead=self.instead.format(shlex.quote(typed)))


TABLE = (
    Word("ops", "explain", kind="command"),
    Word("help", "--help", kind="flag"),
    Word("version", "--version", kind="flag"),
    Word("bcast", "broadcast", kind="operation"),
    Word("sendrecv", "p2p", kind="operation"),
    Word("allgatherv", "all_gather --uneven", kind="operation"),
    Word("alltoallv", "all_to_all --uneven", kind="operation"),
    Word("_all_gather_base", "all_gather --variant single", kind="operation"),
    Word("_reduce_scatter_base", "reduce_scatter --variant single", kind="operation"),
    Word("ring", "p2p --pattern ring", kind="operation"),
    Word("exchange", "p2p --pattern exchange", kind="operation"),
    Word("binomial, binomial-tree", "tree", kind="algorithm"),
    Word("butterfly, recursive-doubling", "doubling", kind="algorithm"),
    Word("linear", "flat", kind="algorithm"),
    Word("parameter-server", "aggregator", kind="algorithm"),
    Word("pipeline", "chain", kind="algorithm"),
    Word("rabenseifner", "halving-doubling", kind="algorithm"),
    Word("recursive-halving", "halving", kind="algorithm"),
    Word("tree", "binary-tree", kind="algorithm"),
    Word("van-de-geijn", "scatter-all-gather", kind="algorithm"),
    Word("two-tree, double-binary-tree", "double-tree", kind="algorithm"),
    Word(
        "-np, --np, --nproc, --nprocs, --nproc-per-node, --num-processes, --ntasks, --nranks, -g, "
        "--gpus, --ngpus",
        "--world-size",
        kind="option",
    ),
    Word("--master-addr, --rdzv-endpoint", "--master", kind="option"),
    Word("--async-op, --nonblocking", "--async", kind="option"),
    Word("--op, --redop", "--reduce-op", kind="option"),
    Word("--datatype", "--dtype", kind="option"),
    Word("--algo", "--algorithm", kind="option"),
    Word("--json", "--format=json", kind="option"),
    Word("--no-sanitize", "--sanitize=off", kind="option"),
    Word("--standalone", "--launcher=local", kind="option"),
    Word("--pid, --attach", "--job", kind="option"),
    Word("--numel, --elements, --count, --size", "--shape", kind="option"),
    Word("--iterations, --repeat", "--iters", kind="option"),
    Word("--ranks, --num-ranks, --processes, --workers", "-n", kind="similar"),
    Word("--ranks, --members, --only-ranks", "--group", kind="similar"),
    Word("--src, --dst, --source, --dest, --owner", "--root", kind="similar"),
    Word("--source, --sender, --from", "--src", kind="similar"),
    Word("--dest, --receiver, --to, --peer", "--dst", kind="similar"),
    Word("--input, --data, --tensor, --fill", "--values", kind="similar"),
    Word("--single", "--variant", kind="similar"),
    Word("--bytes", "--sizes", kind="similar"),
    Word("--late, --delay, --slow", "--straggler", kind="similar"),
    Word("ring", "distdemo trace ring", kind="topic"),
    # to learn and to teach
    Word(
        "quickstart, start, intro, demo, getting-started, init_process_group, get_rank, "
        "destroy_process_group, get_world_size, is_initialized, whoami, ping",
        "distdemo hello",
    ),
    Word("tutorial, lesson, lessons, course, guide, concepts", "distdemo learn"),
    Word("scatter-gather", "distdemo learn scatter-gather"),
    Word(
        "exercise, exercises, homework, quiz, assignment, practice",
        "distdemo learn --write exercises",
    ),
    Word(
        "hint, hints, clue, solution, solutions, solve, answer, answers",
        "distdemo learn --write exercises",
        "learn --write FOLDER writes exercises; the hints in its folder hints/ lead to a solution.",
    ),
    Word(
        "class, classroom, lecture, lecturer, teach, teacher, workshop",
        "distdemo learn --write class --solutions",
        "learn --write FOLDER writes slides, a notebook and exercises, with --solutions for a "
        "class.",
    ),
    Word(
        "slide, slides, notebook, notebooks, jupyter, ipynb, colab",
        "distdemo learn --write class",
        "learn --write FOLDER writes slides, a notebook and exercises. In your own notebook: "
        "%load_ext distdemo, then %%ranks 4.",
    ),
    Word(
        "quit, exit, bye, stop",
        "distdemo",
        "There is nothing to quit: a command ends by itself, or with Ctrl-C; shell also with exit.",
    ),
    Word(
        "example, examples, sample, code, template, snippet",
        "distdemo explain scatter --code",
        "explain OP --code prints a program that makes the call, for torchrun.",
    ),
    Word("ipython, python, repl, console, interactive", "distdemo shell"),
    Word(
        "picture, image, figure, draw, plot, png, svg",
        "distdemo scatter --output scatter.svg",
        "Every command writes its result as a picture with --output FILE.svg or FILE.png.",
    ),
    Word(
        "animate, animation, visualize, visualise, viz, play, video, gif, html, rounds",
        "distdemo trace --animate",
        "trace shows a collective round by round; --output ring.html plays it in a browser.",
    ),
    Word(
        "tree, binary-tree, double-tree, doubling, halving-doubling, recursive-doubling, "
        "rabenseifner, butterfly, naive-ring, aggregator, parameter-server",
        "distdemo trace --algorithm {}",
    ),
    Word(
        "algorithm, algorithms, algo, algos, cost, costs, formula, formulas, complexity",
        "distdemo trace list",
    ),
    Word(
        "list, ls, commands, all-ops",
        "distdemo explain",
        "explain lists the operations, trace list the algorithms, mistakes the bugs.",
    ),
    Word(
        "collective, collectives, operation, operations, op",
        "distdemo explain",
    ),
    # calls and arguments of torch.distributed and MPI
    Word(
        "sum, mean, avg, average, max, maximum, min, minimum, product, prod",
        "distdemo all-reduce --reduce-op {}",
        "The reduce operation is an option of the collectives that combine.",
    ),
    Word(
        "ReduceOp, reduction",
        "distdemo all-reduce --reduce-op max",
        "The reduce operation is an option of the collectives that combine.",
    ),
    Word(
        "new_group, new_subgroups, split_group, group, groups, subgroup, process_group, comm_split",
        "distdemo all-reduce --group 0,2",
        "--group creates a group of some ranks and runs an operation in it.",
    ),
    Word(
        "wait, handle, async, async_op, nonblocking, overlap",
        "distdemo all-reduce --async",
        "--async makes the call with async_op=True, and waits for its handle.",
    ),
    Word(
        "scan, exscan, cumsum, prefix-sum",
        "distdemo all-gather",
        "torch.distributed has no scan: gather all tensors, and add those of lower ranks.",
    ),
    Word(
        "gatherv, scatterv",
        "distdemo all-gather --uneven",
        "torch's gather and scatter take equal sizes; all-gather and all-to-all have --uneven.",
    ),
    Word("sync, synchronize", "distdemo barrier"),
    Word("rpc_sync, rpc_async, remote, rref", "distdemo rpc"),
    # programs and launchers
    Word(".py", "distdemo run {}"),
    Word(
        "torchrun, launch, launcher, elastic, spawn, script, program, deepspeed, megatron, "
        "lightning, accelerate, dtensor, device_mesh, init_device_mesh, debug, debugger, sanitize, "
        "sanitizer, detect, mismatch",
        "distdemo run train.py -n 4",
    ),
    Word(
        "mpirun, mpiexec, srun, sbatch, slurm, cluster, nodes, multinode",
        "mpiexec -n 4 distdemo hello",
        "Under mpiexec, srun or torchrun, the ranks run one distdemo command together.",
    ),
    Word(
        "ddp, DistributedDataParallel, data-parallel, dataparallel, gradients",
        "distdemo train",
    ),
    Word(
        "fsdp, fsdp2, fully_shard, hsdp, zero, zero-2, zero-3, sharding",
        "distdemo learn fsdp",
        "learn has the steps fsdp (ZeRO-3) and zero-1; run and parity take your own program.",
    ),
    Word(
        "zero-1, ZeroRedundancyOptimizer, sharded-optimizer",
        "distdemo learn zero-1",
        "learn has a step on it; run and parity take your own program.",
    ),
    Word(
        "tp, tensor-parallel, tensor-parallelism, column-parallel, row-parallel",
        "distdemo learn tensor-parallel",
        "learn has a step on it; run and parity take your own program.",
    ),
    Word(
        "pp, pipeline, pipeline-parallel, gpipe, 1f1b, microbatch",
        "distdemo learn pipeline",
        "learn has a step on it; run and parity take your own program.",
    ),
    Word(
        "moe, experts, expert-parallel, ring-attention, context-parallel, sequence-parallel",
        "distdemo learn",
        "learn has steps on them: moe and ring-attention.",
    ),
    Word(
        "--lr, --learning-rate, --momentum, --weight-decay, --optimizer, --batch-size, --batch, "
        "--model, --layers, --hidden, --data, --dataset",
        "distdemo parity train.py -n 4",
        "train's model, data and optimizer are fixed; parity compares your own training.",
    ),
    Word(
        "--tag, --tags",
        "distdemo shell",
        "p2p sends one message, without a tag; in shell, dist.send(t, 1, tag=7) has one.",
    ),
    Word(
        "--seed, --random",
        "distdemo all-reduce --values 1,2 --values 3,4",
        "Inputs of operations aren't random; the option --values sets them, once per rank.",
    ),
    Word(
        "--warmup, --warmup-iters",
        "distdemo bench all-reduce",
        "bench warms up on its own, then repeats a call until its median is steady.",
    ),
    Word(
        "profile, profiler, timeline, perfetto, record",
        "distdemo run train.py -n 4 --record timeline.json",
        "run --record writes a timeline of every rank's calls, for Perfetto.",
    ),
    Word(
        "flight-recorder, dump, dumps, stacks, crash, logs, timeout",
        "distdemo postmortem FOLDER",
    ),
    Word(
        "seed, replicas, drift, diverge, equal, same",
        "distdemo parity train.py -n 4",
    ),
    Word(
        "placement, placements, partial, replicate, replicated, shard, sharded, P, R",
        "distdemo parity train.py -n 4",
        "parity names the placement of every tensor: R replicated, S(0) sharded, P partial.",
    ),
    Word(
        "pytest, unittest, testing, fixture",
        "pytest tests",
        "@pytest.mark.ranks(4) runs a test on four ranks.",
    ),
    Word(
        "hang, hangs, hanging, hung, stuck, freeze, frozen, blocked, attach, live, pid, py-spy, "
        "pystack, gdb, strace, ncclras, debug-server",
        "distdemo postmortem --live",
        "postmortem --live names the rank and line of a job that hangs now; mistakes shows common "
        "bugs.",
    ),
    Word(
        "bug, bugs, pitfalls, wrong, deadlock, race, races",
        "distdemo mistakes",
        "mistakes runs common bugs; run names the rank and line in your own program.",
    ),
    # this machine
    Word(
        "test, tests",
        "distdemo check",
        "check verifies every operation on this machine. For tests of your own programs, and those "
        "of exercises: pytest, with @pytest.mark.ranks(4).",
    ),
    Word("verify, validate, selftest, smoke, correctness, ci, junit", "distdemo check"),
    Word(
        "env, environment, info, status, diagnose, collect_env, network, install, setup",
        "distdemo doctor",
    ),
    Word(
        "gloo, nccl, mpi, ucc",
        "distdemo all-reduce --backend {}",
        "The backend is an option; distdemo backends lists those that work here.",
    ),
    Word(
        "gpu, gpus, cuda, device",
        "distdemo all-reduce --device cuda",
        "The device is an option; distdemo doctor looks for GPUs.",
    ),
    Word(
        "benchmark, benchmarks, perf, performance, speed, bandwidth, busbw, algbw, throughput, "
        "measure, timing, nccl-tests, osu, imb, imb-mpi1",
        "distdemo bench all-reduce",
        "bench measures an operation over sizes; -b, -e and -f are those of nccl-tests.",
    ),
    Word(
        "latency, bw, bibw",
        "distdemo bench p2p",
        "bench p2p measures messages between two ranks.",
    ),
    Word("links, topology, nvlink, pairs", "distdemo bench links"),
    Word("compare, diff, regression", "distdemo bench compare old.json new.json"),
    Word(
        "fit, model, predict, scaling",
        "distdemo bench fit two.json four.json --predict 64",
    ),
)
BENCHMARK = Word(
    "",
    "distdemo bench {}",
    "bench has the -b, -e and -f of nccl-tests; -n is the number of ranks.",
)
"""Hint for the programs of nccl-tests and OSU: ``all_reduce_perf``, ``osu_allreduce``."""
HINTS = {
    name if name.startswith((".", "--")) else letters(name): word
    for word in TABLE
    if word.kind == "hint"
    for name in word.names.split(", ")
}
"""Hints by the letters of the words, by an option with its dashes, or by the suffix of a file."""
TOPICS = {word.names: word for word in TABLE if word.kind == "topic"}
"""Topics by their name."""
MOST = 4
"""Names that one beginning can mean."""
LEAST = 3
"""Letters of the beginning of a name that is recognised; a typo of fewer isn't."""
TYPO = 0.7
"""Least similarity, from 0 to 1, of a typo and a name."""
SHORT_TYPO = 0.66
"""The same for names of three letters that begin alike: one may differ, as in ``dpp``."""
PART_TYPO = 0.8
"""The same for the first part of a name: ``scater`` for ``scatter-gather``."""


def meanings(*kinds: Kind) -> dict[str, str]:
    """Return what to use instead of the words of these kinds, by word."""
    return {
        name: word.instead
        for word in TABLE
        if word.kind in kinds
        for name in word.names.split(", ")
    }


def spelled(option: str) -> str:
    """Return an option as the table spells it: ``--Batch_size`` is ``--batch-size``."""
    return option.lower().replace("_", "-")


def is_own_hint(option: str) -> bool:
    """Return True if the table has a hint for this option, and not only for such a word."""
    return option.startswith("--") and spelled(option) in HINTS


def other_options(option: str) -> list[str]:
    """Return the options that one of this name may mean, in the order of the table."""
    name = spelled(option)
    kinds = ("option", "similar")
    words = (word for word in TABLE if word.kind in kinds and name in word.names.split(", "))
    return [word.instead for word in words]


def hint(name: str) -> Word | None:
    """Return the hint for a name of another tool or of a wish, or None."""
    if is_own_hint(name):
        return HINTS[spelled(name)]
    if re.fullmatch("-.", name):  # P is a placement, -P is an option of one letter
        return None
    name = name.lstrip("-")
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

    These are the names that begin so, or the one closest to a typo, also of its first part, or the
    one that is extended: ``all_reduce_coalesced`` extends ``all-reduce``.

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
    short = {key: full for key, full in known.items() if len(key) == len(word) == LEAST}
    short = {key: full for key, full in short.items() if key[0] == word[0]}
    first = {letters(re.split("[-_ ]", full)[0]): full for full in reversed(known.values())}
    for full_of, likeness in ((every, TYPO), (short, SHORT_TYPO), (first, PART_TYPO)):
        typos = difflib.get_close_matches(word, full_of, 1, likeness)
        if typos:
            return [full_of[typos[0]]]
    parts = re.split(r"[^a-z0-9]+", name.lower())
    beginnings = ("".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
    return [known[beginning] for beginning in beginnings if beginning in known][:1]
