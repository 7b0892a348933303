"""Every option that the commands of ops share, declared once."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from distdemo import ops
from distdemo.cli.option_kinds import (
    DATA,
    OPERATION,
    OUTPUT,
    RANKS,
    among,
    backend_option,
    flag_option,
    text_option,
)
from distdemo.dtypes import DTYPES
from distdemo.ops.p2p import PATTERNS
from distdemo.ops.reduction import REDUCTIONS

_OP_ARGUMENT = typer.Argument(
    metavar="OP",
    help="all-reduce, scatter, ...; distdemo ops lists them.",
    autocompletion=among(op.command for op in ops.REGISTRY.values()),
)

OPTIONS: dict[str, tuple[Any, Any]] = {
    "op": (Annotated[str, _OP_ARGUMENT], inspect.Parameter.empty),
    "world_size": text_option(
        "--world-size",
        "-n",
        panel=RANKS,
        metavar="N",
        text="How many ranks to start. By default as many as --values has rows, else 4 (p2p 2).",
    ),
    "start": text_option(
        "--world-size", "-n", panel=RANKS, metavar="N", text="How many ranks to start: 4."
    ),
    "backend": backend_option("--backend", "-b"),
    "device": text_option(
        "--device",
        panel=RANKS,
        metavar="DEVICE",
        text="cpu or cuda; by default what the backend is for.",
        offers=("cpu", "cuda"),
    ),
    "timeout": text_option(
        "--timeout",
        panel=RANKS,
        metavar="SECONDS",
        text="When to give up, and say who is missing. By default 30 s; beyond 100 ranks 0.3 s a "
        "rank (with spawn 2 s a rank, for the import of torch in each).",
    ),
    "start_method": text_option(
        "--start-method",
        panel=RANKS,
        metavar="METHOD",
        text="auto (the fastest that is safe), fork, forkserver or spawn.",
        default="auto",
        offers=("auto", "fork", "forkserver", "spawn"),
        kind=str,
    ),
    "dtype": text_option(
        "--dtype",
        panel=DATA,
        metavar="DTYPE",
        text="Element type, torch's name or a short one: float32 or f32, bf16, int64, ...",
        default="float32",
        offers=DTYPES,
        kind=str,
    ),
    "shape": text_option(
        "--shape",
        panel=DATA,
        metavar="SHAPE",
        text="Of one tensor: a number, 2,3, or scalar. By default 4 (2 where a rank has a piece "
        "for every rank).",
    ),
    "values": text_option(
        "--values",
        panel=DATA,
        metavar="NUMBERS|FILE",
        text="Your own data, once a rank: --values 1,2,3 --values 4,5,6. Or a file with a line a "
        "rank, or - for standard input. scatter takes the root's pieces, objects are JSON.",
        kind=list[str] | None,
    ),
    "fill": text_option(
        "--fill",
        panel=DATA,
        metavar="NUMBER|rank",
        text="The same number in every element, or each rank's own number.",
    ),
    "reduce_op": text_option(
        "--reduce-op",
        panel=OPERATION,
        metavar="OP",
        text=", ".join(REDUCTIONS) + ".",
        default="sum",
        offers=REDUCTIONS,
        kind=str,
    ),
    "async_op": flag_option(
        "--async",
        panel=OPERATION,
        text="Ask for a handle (async_op=True), then wait on it; both are timed.",
    ),
    "src": text_option("--src", panel=OPERATION, metavar="RANK", text="The sender: 0."),
    "dst": text_option("--dst", panel=OPERATION, metavar="RANK", text="The receiver: 1."),
    "nonblocking": flag_option(
        "--nonblocking",
        panel=OPERATION,
        text="isend and irecv: see what the buffer holds before and after the wait.",
    ),
    "pattern": text_option(
        "--pattern",
        panel=OPERATION,
        metavar="PATTERN",
        text=", ".join(f"{name} ({meaning})" for name, meaning in PATTERNS.items()) + ".",
        default="pair",
        offers=PATTERNS,
        kind=str,
    ),
    "variant": text_option(
        "--variant",
        panel=OPERATION,
        metavar="VARIANT",
        text="list (a tensor for each rank) or single (one tensor that holds them all). By "
        "default a list.",
        offers=("list", "single"),
    ),
    "uneven": flag_option(
        "--uneven",
        panel=OPERATION,
        text="Tensors of a different size on each rank: gather the sizes, pad, gather, trim.",
    ),
    "sizes": text_option(
        "--sizes",
        panel=OPERATION,
        metavar="LENGTHS",
        text="With --uneven: the length of each rank's tensor, 3,0,7. By default 1,2,3, ...",
    ),
    "splits": text_option(
        "--splits",
        panel=OPERATION,
        metavar="LENGTHS",
        text="Uneven parts: the length of the part for each rank, 1,2,0,3; once for all ranks, or "
        "once a rank.",
        kind=list[str] | None,
    ),
    "objects": flag_option(
        "--objects",
        panel=OPERATION,
        text="Python objects instead of tensors: --values takes JSON. They travel as pickles, and "
        "unpickling runs code: never with peers that you don't trust.",
    ),
    "straggler": text_option(
        "--straggler",
        panel=OPERATION,
        metavar="RANK:SECONDS",
        text="Let this rank come late, and see the others wait.",
    ),
    "monitored": flag_option(
        "--monitored",
        panel=OPERATION,
        text="monitored_barrier: it gives up shortly before --timeout, and names the ranks that "
        "did not come.",
    ),
    "factor": text_option(
        "--factor",
        panel=OPERATION,
        metavar="NUMBER",
        text="With --reduce-op premul_sum: what each rank's tensor is multiplied with. By "
        "default 2.",
    ),
    "inference": flag_option(
        "--inference-mode",
        panel=OPERATION,
        text="Run it under torch.inference_mode.",
    ),
    "group": text_option(
        "--group",
        panel=RANKS,
        metavar="RANKS",
        text="Only these ranks form a group and take part: 0,2 or 1-3. --root is then the rank "
        "within the group.",
    ),
    "split": text_option(
        "--split",
        panel=RANKS,
        metavar="N|%N|/N",
        text="Cut the world in N groups of neighbours that run at once; %N by the rank modulo N, "
        "/N into groups of N.",
    ),
    "seed": text_option(
        "--seed",
        panel=DATA,
        metavar="NUMBER",
        text="Mix the default values by this number instead of counting.",
    ),
    "format": text_option(
        "--format",
        panel=OUTPUT,
        metavar="FORMAT",
        text="table or json.",
        default="table",
        offers=("table", "json"),
        kind=str,
    ),
    "ranks": text_option(
        "--ranks",
        panel=OUTPUT,
        metavar="LIST",
        text="Which ranks to show: 0,5-7 or all. By default all up to 16, then the first and last "
        "and every rank that failed.",
    ),
    "explain": flag_option(
        "--explain",
        panel=OUTPUT,
        text="First draw what the operation does, what it costs, and the usual mistake.",
    ),
    "quiet": flag_option("--quiet", "-q", panel=OUTPUT, text="Print the verdict alone."),
    "traceback": flag_option(
        "--traceback", panel=OUTPUT, text="Show the traceback of the rank at fault."
    ),
}
"""Annotation and default of each shared option by its Python name."""
