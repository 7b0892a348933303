"""``distdemo trace compare`` and ``trace simulate``, which compare an operation's algorithms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    Backend,
    Device,
    DType,
    Plot,
    ReduceOp,
    Root,
    SizeList,
    Stall,
    StartMethod,
    Timeout,
    WorldSize,
    count,
)
from distdemo.cli.session import Session
from distdemo.cli.types import BadValue, parse_seconds
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.ops.footprint import footprint, memory_of_all
from distdemo.ops.spec import OpSpec
from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.command import LONE, AlgorithmNames, Chunks, Factor, Operation
from distdemo.trace.compare.records import Comparison, ComparisonSpec
from distdemo.trace.records import CostModel
from distdemo.trace.request import (
    at_size,
    find_algorithms,
    find_op,
    make_template,
    make_world,
    payloads,
    readable,
)

VIEW = "distdemo.trace.compare.view"
RUN_SIZES = (1 << 10, 1 << 16, 1 << 20, 16 << 20)
PAPER_SIZES = (1 << 10, 1 << 20, 1 << 30)
MOST_DRAWN = 64  # ranks that a page can show
WEEK_S = 7 * 24 * 3600.0  # default timeout: a comparison ends when its sizes are done

_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "ps": 1e-12}
_TIME = re.compile(r"([0-9.]+(?:e-?[0-9]+)?)\s*(s|ms|us|µs|ns|ps)(?:/B)?", re.IGNORECASE)
_BANDWIDTH = re.compile(r"([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)(B|bit|b)(?:/s|ps)", re.IGNORECASE)


# ------------------------------------------------------------------------------------ α, β and fit


def parse_alpha(text: Any) -> float:  # noqa: ANN401 - a text or a default
    """Parse the cost of a message, such as ``5us``, into seconds."""
    if not isinstance(text, str):
        return text  # type: ignore[no-any-return]  # typer's default
    match = _TIME.fullmatch(text.strip())
    if text.strip() == "0":
        return 0.0
    if match is None:
        raise BadValue(
            text, "this is not a time.", "Write the cost of a message with a unit.", "5us"
        )
    return float(match[1]) * _UNITS[match[2].lower()]


def parse_beta(text: Any) -> float:  # noqa: ANN401 - a text or a default
    """Parse the cost of a byte, ``0.1ns`` or a bandwidth with decimal prefixes, ``10GB/s``."""
    if not isinstance(text, str):
        return text  # type: ignore[no-any-return]  # typer's default
    word = text.strip()
    if match := _BANDWIDTH.fullmatch(word):
        scale = (1024.0 if match[3] else 1000.0) ** " kmgt".index(match[2].lower() or " ")
        per_s: float = float(match[1]) * scale / (1 if match[4] == "B" else 8)
        if per_s > 0:
            return 1 / per_s
    elif word == "0" or _TIME.fullmatch(word):
        return float(parse_alpha(word))
    why = "Write the cost of a byte, or the bandwidth, with a unit."
    raise BadValue(text, "this is neither a time nor a bandwidth.", why, "10GB/s")


Alpha = Annotated[
    float | None,
    typer.Option(metavar="TIME", parser=parse_alpha, help="Cost per message, α: 5us."),
]
Beta = Annotated[
    float | None,
    typer.Option(metavar="TIME", parser=parse_beta, help="Cost per byte, β: 0.1ns, or 10GB/s."),
]
Fit = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE.json", help="Fit α and β to a file of bench --output; may be repeated."
    ),
]


def _link(
    alpha: float | None, beta: float | None, files: Sequence[Path] | None, op: Op
) -> CostModel | None:
    """Return the α and β that the user gave, or None."""
    if (alpha is None) != (beta is None) or (files and alpha is not None):
        raise UsageError(
            "--alpha and --beta require each other; --fit can't be combined with them.",
            "A message costs α, and β for each byte.",
            "Try --alpha 5us --beta 10GB/s, or --fit FILE.json.",
        )
    if files:
        from distdemo.trace.compare.compare import link_of_files

        return link_of_files(files, op.name)
    return None if alpha is None or beta is None else CostModel(alpha, beta)


# ------------------------------------------------------------------------------------ the commands


@command(
    joins=True,
    record="distdemo.trace.compare.records:Comparison",
    epilog="Try: distdemo trace compare; distdemo trace compare broadcast -n 8 --sizes 1K,16M; "
    "distdemo trace compare -a ring,doubling --plot times.svg",
)
def compare(  # noqa: PLR0913 - each is an option
    session: Session,
    *,
    op: Operation = None,
    algorithm: AlgorithmNames = None,
    world_size: WorldSize = None,
    sizes: SizeList = None,
    reduce_op: ReduceOp = "sum",
    root: Root = 0,
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", parser=parse_seconds, help="Time per size.")
    ] = 2.0,
    alpha: Alpha = None,
    beta: Beta = None,
    fit: Fit = None,
    plot: Plot = None,
    dtype: DType = "float32",
    chunks: Chunks = None,
    factor: Factor = 2.0,
    backend: Backend = "auto",
    device: Device = None,
    timeout: Timeout = None,
    stall: Stall = None,
    start_method: StartMethod = "auto",
) -> Result:
    """Run, verify and time an operation's algorithms and the backend's own call.

    All run interleaved on the same ranks. Each median is shown with the α–β model's prediction;
    α and β are measured before the first size unless they are given.
    """
    kind = find_op(op)
    named = find_algorithms(kind, algorithm, chunks)
    n = session.world_size(world_size, 4, 2, LONE)
    template = make_template(kind, n, dtype, reduce_op, root, factor=factor)
    specs = _specs(kind, template, sizes, RUN_SIZES)
    asked = _asked(specs, named, chunks, _link(alpha, beta, fit, kind), budget)
    largest = specs[-1]
    data = len(named) * memory_of_all(kind, largest) + footprint(kind, largest)
    world = make_world(
        session,
        n,
        data // n * session.ranks_here(n),
        backend=backend,
        device=device,
        start_method=start_method,
        deadline=timeout or WEEK_S,
        stall=stall or max(30.0, 0.3 * n),
    )
    world = replace(world, lazy=False)
    session.prepare(world)
    from distdemo.trace.compare.compare import compare as run_all
    from distdemo.trace.compare.rank import SizeDone
    from distdemo.view.progress import Progress

    with Progress(len(specs), enabled=not session.quiet and session.is_first) as bar:
        found = run_all(
            asked,
            world,
            partial(session.start, sends=SizeDone | None),
            lambda done, now: bar.advance(done, 0, now),
        )
    return Result(
        found,
        VIEW,
        partial=bool(found.sizes),
        interrupted=found.interrupted,
        errors=_wrong_rows(found),
        plot=plot,
    )


@command(
    outputs=(".html", ".json", ".txt"),
    record="distdemo.trace.compare.records:Comparison",
    epilog="Try: distdemo trace simulate -n 65536 --alpha 5us --beta 10GB/s; "
    "distdemo trace simulate -a ring -n 5 --output ring.html",
)
def simulate(
    session: Session,
    *,
    op: Operation = None,
    algorithm: AlgorithmNames = None,
    world_size: Annotated[int, count("Number of ranks.", 2, None, "--world-size", "-n")] = 4,
    sizes: SizeList = None,
    root: Root = 0,
    alpha: Alpha = None,
    beta: Beta = None,
    fit: Fit = None,
    plot: Plot = None,
    dtype: DType = "float32",
    chunks: Chunks = None,
) -> Result:
    """Count rounds and bytes of an operation's algorithms on paper.

    No rank is started. With α and β, times are predicted too.
    """
    kind = find_op(op)
    named = find_algorithms(kind, algorithm, chunks)
    template = make_template(kind, world_size, dtype, root=root)
    draws = session.output is not None and session.output.suffix.lower() == ".html"
    if draws and (len(named) > 1 or world_size > MOST_DRAWN):
        raise UsageError(
            f"--output FILE.html draws one algorithm on up to {MOST_DRAWN} ranks.",
            f"{kind.command} has {', '.join(each.name for each in named)}.",
            f"Try --algorithm {named[0].name} -n {min(world_size, 16)}.",
        )
    if draws and sizes is None:
        specs = [readable(template, named[0], chunks)]
    else:
        specs = _specs(kind, template, sizes, PAPER_SIZES)
    asked = _asked(specs, named, chunks, _link(alpha, beta, fit, kind))
    from distdemo.trace.compare.compare import simulate as count_all
    from distdemo.view.progress import spinner

    with spinner(f"Counting {world_size:,} ranks", enabled=not session.quiet):
        found = count_all(asked)
    return Result(found, VIEW, plot=plot)


def _specs(
    op: Op, template: OpSpec, sizes: Sequence[int] | None, usual: Sequence[int]
) -> list[OpSpec]:
    """Return the op at each distinct size, sorted."""
    found = (at_size(op, template, size) for size in payloads(op, template, sizes, usual))
    return list(dict.fromkeys(found))


def _asked(
    specs: Sequence[OpSpec],
    named: Sequence[Algorithm],
    chunks: int | None,
    link: CostModel | None,
    budget_s: float = 0.0,
) -> ComparisonSpec:
    return ComparisonSpec(tuple(specs), tuple(each.name for each in named), chunks, budget_s, link)


def _wrong_rows(report: Comparison) -> tuple[Error, ...]:
    """Return an error per row with wrong elements, and one if the run was interrupted."""
    found = [
        Error(
            f"{each.algorithm} gave wrong elements at {size.traffic.payload_bytes:,} B.",
            f"{each.timing.wrong:,} of {each.timing.checked:,} differ from plain arithmetic.",
        )
        for size in report.sizes
        for each in size.candidates
        if each.timing is not None and each.is_wrong
    ]
    if report.interrupted:
        found.append(Error("The measurement was interrupted."))
    return tuple(found)
