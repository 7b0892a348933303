"""``distdemo trace compare`` and ``trace simulate``, which compare an operation's algorithms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from distdemo import ops
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import Plot, count
from distdemo.cli.session import Session
from distdemo.cli.types import BadValue, parse_seconds
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.ops.footprint import footprint, memory_of_all
from distdemo.schedules.count import CostModel
from distdemo.trace.command import ONE_RANK
from distdemo.trace.compare.records import Comparison, ComparisonSpec
from distdemo.trace.options import ScheduleOptions, algorithm_option
from distdemo.trace.records import TraceSpec
from distdemo.trace.request import (
    at_sizes,
    find_algorithms,
    find_op,
    make_spec,
    make_world,
    one_element_per_chunk,
)

RUN_SIZES = (1 << 10, 1 << 16, 1 << 20, 16 << 20)
PAPER_SIZES = (1 << 10, 1 << 20, 1 << 30)
MOST_DRAWN = 64  # ranks that a page can show
DEADLINE_S = 7 * 24 * 3600.0  # default timeout: a comparison ends when its sizes are done

_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "ps": 1e-12}
_TIME = re.compile(r"(?i)(\d+(?:\.\d*)?(?:e-?\d+)?)\s*(s|ms|us|µs|ns|ps)(?:/B)?")
_BANDWIDTH = re.compile(r"(?i)(\d+(?:\.\d*)?(?:e\d+)?)\s*([kmgt]?)(i?)(B|bit|b)(?:/s|ps)")


# ------------------------------------------------------------------------------------ α, β and fit


def parse_alpha(text: str) -> float:
    """Parse the cost of a message, such as ``5us``, into seconds."""
    match = _TIME.fullmatch(text.strip())
    if text.strip() == "0":
        return 0.0
    if match is None:
        raise BadValue(
            text, "this is not a time.", "Write the cost of a message with a unit.", "5us"
        )
    return float(match[1]) * _UNITS[match[2].lower()]


def parse_beta(text: str) -> float:
    """Parse the cost of a byte, ``0.1ns`` or a bandwidth with decimal prefixes, ``10GB/s``."""
    word = text.strip()
    if match := _BANDWIDTH.fullmatch(word):
        scale = (1024.0 if match[3] else 1000.0) ** " kmgt".index(match[2].lower() or " ")
        per_s: float = float(match[1]) * scale / (1 if match[4] == "B" else 8)
        if per_s > 0:
            return 1 / per_s
    elif word == "0" or _TIME.fullmatch(word):
        return parse_alpha(word)
    why = "Write the cost of a byte, or the bandwidth, with a unit."
    raise BadValue(text, "this is neither a time nor a bandwidth.", why, "10GB/s")


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ScheduleOptions):
    """Options of ``distdemo trace compare``; ``trace simulate`` has some of them."""

    algorithm: Annotated[str | None, algorithm_option("NAME,...", "all")] = None
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", parser=parse_seconds, help="Time per size.")
    ] = 2.0
    alpha: Annotated[
        float | None,
        typer.Option(metavar="TIME", parser=parse_alpha, help="Cost per message, α: 5us."),
    ] = None
    beta: Annotated[
        float | None,
        typer.Option(metavar="TIME", parser=parse_beta, help="Cost per byte, β: 0.1ns, or 10GB/s."),
    ] = None
    fit: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.json", help="Fit α and β to a file of bench --output; may be repeated."
        ),
    ] = None
    plot: Plot = None


def make_comparison(
    options: CompareOptions, n: int, sizes: Sequence[int], *, drawn: bool = False
) -> ComparisonSpec:
    """Return the comparison on n ranks.

    Args:
        options: Options of the command.
        n: Number of ranks.
        sizes: Default sizes.
        drawn: True if a page will show the rounds of the only algorithm, by default with one
            element per chunk.

    Raises:
        UsageError: An option can't be used.
    """
    op = find_op(options.op)
    algorithms = find_algorithms(op, options.algorithm, options.chunks)
    spec = make_spec(op, options, n, op.joined_variant())
    if drawn and (len(algorithms) > 1 or n > MOST_DRAWN):
        raise UsageError(
            f"--output FILE.html draws one algorithm on up to {MOST_DRAWN} ranks.",
            f"{op.command} has {', '.join(each.name for each in algorithms)}.",
            f"Try --algorithm {algorithms[0].name} -n {min(n, 16)}.",
        )
    if drawn and options.sizes is None:
        specs = [one_element_per_chunk(spec, algorithms[0], options.chunks)]
    else:
        specs = at_sizes(spec, options.sizes, sizes)
    names = tuple(each.name for each in algorithms)
    return ComparisonSpec(
        tuple(specs), names, options.chunks, options.budget, _link(options, op.name)
    )


def _link(options: CompareOptions, op: str) -> CostModel | None:
    """Return the α and β that the user gave, or None."""
    alpha, beta = options.alpha, options.beta
    if (alpha is None) != (beta is None) or (options.fit and alpha is not None):
        raise UsageError(
            "--alpha and --beta require each other; --fit can't be combined with them.",
            "A message costs α, and β for each byte.",
            "Try --alpha 5us --beta 10GB/s, or --fit FILE.json.",
        )
    if options.fit:
        from distdemo.trace.compare.compare import link_of_files

        return link_of_files(options.fit, op)
    return None if alpha is None or beta is None else CostModel(alpha, beta)


# ------------------------------------------------------------------------------------ the commands


@command(
    joins=True,
    record="distdemo.trace.compare.records:Comparison",
    defaults={"timeout": "none", "stall": "30, more for many ranks", "sizes": "1K,64K,1M,16M"},
    epilog="Try: distdemo trace compare; distdemo trace compare broadcast -n 8 --sizes 1K,16M; "
    "distdemo trace compare -a ring,doubling --plot times.svg",
)
def compare(session: Session, options: CompareOptions) -> Result:
    """Run, verify and time an operation's algorithms and the backend's own call.

    All run interleaved on the same ranks. Each median is shown with the α–β model's prediction;
    α and β are measured before the first size unless they are given.
    """
    n = session.world_size(options.world_size, 4, 2, ONE_RANK)
    spec = make_comparison(options, n, RUN_SIZES)
    world = _world(session, options, spec)
    session.prepare(world)
    from distdemo.trace.compare.compare import compare as run_all
    from distdemo.trace.compare.rank import SizeResult
    from distdemo.view.progress import Progress

    with Progress(len(spec.ops), enabled=not session.quiet and session.is_first) as bar:
        report = run_all(
            spec,
            world,
            partial(session.start, sends=SizeResult | None),
            lambda done, now: bar.advance(done, 0, now),
        )
    result = _result(report, options)
    return replace(
        result,
        partial=bool(report.sizes),
        interrupted=report.interrupted,
        errors=_errors(report),
    )


def _world(session: Session, options: CompareOptions, spec: ComparisonSpec) -> WorldSpec:
    """Return the world to start; it has memory for all algorithms at the largest size."""
    largest = spec.ops[-1]
    op, n = ops.REGISTRY[largest.op], largest.group_size
    data = len(spec.algorithms) * memory_of_all(op, largest) + footprint(op, largest)
    world = make_world(
        session,
        n,
        replace(options, timeout=options.timeout or DEADLINE_S),
        options.stall or max(30.0, 0.3 * n),
        data // n * session.ranks_here(n),
    )
    return replace(world, lazy=False)


def _result(report: Comparison, options: CompareOptions) -> Result:
    from distdemo.trace.compare.view import comparison_view, plot

    drawn = ("--plot", options.plot, lambda: plot(report, options.plot))
    return Result(report, comparison_view, files=(drawn,))


def _errors(report: Comparison) -> tuple[Error, ...]:
    """Return an error per row with wrong elements, and one if the run was interrupted."""
    errors = [
        Error(
            f"{each.algorithm} gave wrong elements at {size.traffic.payload_bytes:,} B.",
            f"{each.timing.wrong:,} of {each.timing.checked:,} differ from plain arithmetic.",
        )
        for size in report.sizes
        for each in size.candidates
        if each.timing is not None and each.is_wrong
    ]
    if report.interrupted:
        errors.append(Error("The measurement was interrupted."))
    return tuple(errors)


@command(
    exports=(".html",),
    record="distdemo.trace.compare.records:Comparison",
    defaults={"sizes": "1K,1M,1G"},
    epilog="Try: distdemo trace simulate -n 65536 --alpha 5us --beta 10GB/s; "
    "distdemo trace simulate -a ring -n 5 --output ring.html",
    takes=frozenset(
        {"op", "algorithm", "world_size", "sizes", "root", "alpha", "beta", "fit", "plot"}
        | {"dtype", "chunks"}
    ),
    annotations={
        "world_size": Annotated[
            int | None, count("Number of ranks.", 2, None, "--world-size", "-n")
        ]
    },
)
def simulate(session: Session, options: CompareOptions) -> Result:
    """Count rounds and bytes of an operation's algorithms on paper.

    No rank is started. With α and β, times are predicted too.
    """
    n = options.world_size or 4
    file = "" if session.output is None else session.output.suffix.lower()
    spec = make_comparison(options, n, PAPER_SIZES, drawn="html" in {session.format, file[1:]})
    from distdemo.trace.compare.compare import simulate as count_all
    from distdemo.view.progress import spinner

    with spinner(f"Counting {n:,} ranks", enabled=not session.quiet):
        report = count_all(spec)

    def draw(_: Comparison) -> str:
        """Return the page of the algorithm, with the contributions after each round."""
        from distdemo.trace.page import page
        from distdemo.trace.report import make_report

        return page(make_report(TraceSpec(spec.ops[0], spec.algorithms[0], spec.chunks)))

    return replace(_result(report, options), exports={".html": draw})
