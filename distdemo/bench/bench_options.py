"""The options of ``bench`` and ``bench links`` that mean something else, or nothing, elsewhere."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from distdemo import ops
from distdemo.bench.old_records import FEWEST_LAUNCHES, PRECISION, BenchSpec
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
from distdemo.ops.p2p import PATTERNS

SIZES = "Sizes: K, M and G count by 1024"
EFFORT = "How long and how often"
WHAT = "What is measured beside"
EVERY_OP = "all"
SECOND_WORDS = ("links", "compare", "fit")
"""What ``bench`` is followed by where it is a command of two words."""
FORMATS = ("table", "json", "csv")
PLACEMENTS = ("both", "out", "in")
_DEFAULT = BenchSpec(())

_OPS = typer.Argument(
    metavar="OP",
    help="all-reduce (the default), scatter, ..., or all. Or one of: "
    + ", ".join(f"bench {word}" for word in SECOND_WORDS)
    + ".",
    show_default=False,
    autocompletion=among((*(op.command for op in ops.REGISTRY.values()), EVERY_OP, *SECOND_WORDS)),
)

BENCH_OPTIONS: dict[str, tuple[Any, Any]] = {
    "bench_ops": (Annotated[list[str] | None, _OPS], None),
    "min_bytes": text_option(
        "--min-bytes",
        "-b",
        panel=SIZES,
        metavar="BYTES",
        text="The smallest size, in the bytes that algbw counts: 8.",
    ),
    "max_bytes": text_option(
        "--max-bytes", "-e", panel=SIZES, metavar="BYTES", text="The largest size: 64M."
    ),
    "step_factor": text_option(
        "--step-factor",
        "-f",
        panel=SIZES,
        metavar="NUMBER",
        text="Each size is so many times the one before: 4.",
    ),
    "step_bytes": text_option(
        "--step-bytes",
        "-i",
        panel=SIZES,
        metavar="BYTES",
        text="Or so many bytes more than the one before.",
    ),
    "bench_size": text_option(
        "--world-size", "-n", panel=RANKS, metavar="N", text="How many ranks to start: 2."
    ),
    "bench_backends": backend_option(
        "--backend", before="One or several: ", after=" (-b is --min-bytes here.)"
    ),
    "bench_timeout": text_option(
        "--timeout",
        panel=RANKS,
        metavar="SECONDS",
        text="When a measurement that gets no further is given up: 30.",
    ),
    "iters": text_option(
        "--iters",
        panel=EFFORT,
        metavar="NUMBER",
        text="So many timed iterations of each size, over all launches together. By default until "
        "the median is steady or the budget spent.",
    ),
    "warmup": text_option(
        "--warmup",
        panel=EFFORT,
        metavar="NUMBER",
        text="Iterations before the timed ones of each size, in every launch. By default 10, fewer "
        "of large sizes.",
    ),
    "launches": text_option(
        "--launches",
        panel=EFFORT,
        metavar="NUMBER",
        text="Over how many fresh worlds the iterations are spread: a median's interval comes from "
        f"those of its launches, {FEWEST_LAUNCHES} at least. By default until it is steady.",
    ),
    "budget": text_option(
        "--budget",
        panel=EFFORT,
        metavar="SECONDS",
        text=f"For timing one operation on one backend: {_DEFAULT.budget:g}.",
    ),
    "precision": text_option(
        "--precision",
        panel=EFFORT,
        metavar="SHARE",
        text=f"A median is steady when its interval is within ± so much of it: {PRECISION:.0%}.",
    ),
    "check_every": text_option(
        "--check-every",
        panel=EFFORT,
        metavar="NUMBER",
        text="Verify again, on fresh data, after so many timed iterations. By default every size "
        "is verified once, before it is timed.",
    ),
    "bench_dtype": text_option(
        "--dtype",
        panel=DATA,
        metavar="DTYPE",
        text="Element type, torch's name or a short one: float32 (the default), bf16, int64, ...",
    ),
    "bench_reduce_op": text_option(
        "--reduce-op", panel=OPERATION, metavar="OP", text="sum (the default), max, avg, ..."
    ),
    "bench_pattern": text_option(
        "--pattern",
        panel=OPERATION,
        metavar="PATTERN",
        text="Of p2p: "
        + ", ".join(f"{name} ({meaning})" for name, meaning in PATTERNS.items())
        + ".",
        offers=PATTERNS,
    ),
    "bench_async": flag_option(
        "--async",
        panel=OPERATION,
        text="Ask for a handle (async_op=True) and wait on it; of p2p isend and irecv.",
    ),
    "bench_variant": text_option(
        "--variant",
        panel=OPERATION,
        metavar="VARIANT",
        text="single (one tensor that holds all pieces; the default) or list (a tensor for each "
        "rank).",
        offers=("single", "list"),
    ),
    "placement": text_option(
        "--placement",
        panel=OPERATION,
        metavar="WHERE",
        text="Where an operation has both: out of place (out), in place (in), or both, side by "
        "side (the default).",
        offers=PLACEMENTS,
    ),
    "skew": flag_option(
        "--skew", panel=WHAT, text="Which rank comes late, and by how much, over all iterations."
    ),
    "overlap": flag_option(
        "--overlap",
        panel=WHAT,
        text="How much of a non-blocking call is hidden behind as much computing. Implies --async.",
    ),
    "no_limits": flag_option(
        "--no-limits",
        panel=WHAT,
        text="Don't measure this machine's memory copy, shared memory and TCP stream.",
    ),
    "profile": flag_option(
        "--profile-harness", panel=WHAT, text="Say what an empty operation costs in the loop."
    ),
    "bench_format": text_option(
        "--format",
        panel=OUTPUT,
        metavar="FORMAT",
        text=", ".join(FORMATS[:-1]) + f" or {FORMATS[-1]}.",
        default="table",
        offers=FORMATS,
        kind=str,
    ),
    "bench_output": text_option(
        "--output",
        panel=OUTPUT,
        metavar="FILE",
        text="Write it all, environment and versions too, by the ending: .json (for bench compare "
        "and bench fit), .csv or .txt.",
    ),
    "bench_plot": text_option(
        "--plot",
        panel=OUTPUT,
        metavar="FILE",
        text="Draw latency and bus bandwidth against size: a .png, .svg or .html. Needs "
        "matplotlib.",
    ),
}
"""Annotation and default of each by its Python name."""
