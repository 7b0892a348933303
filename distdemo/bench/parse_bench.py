"""From the flags of ``bench`` to what is measured, in which worlds, and what is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from distdemo.bench.bench_options import FORMATS
from distdemo.bench.old_records import PRECISION, BenchSpec
from distdemo.bench.parse_bench_series import (
    Wanted,
    check_meaning,
    parse_ops,
    parse_series,
    too_few,
)
from distdemo.bench.parse_measure import (
    measured_world,
    parse_budget,
    parse_count,
    parse_meeting_world,
)
from distdemo.cli.files import (
    check_distinct,
    check_ending,
    check_named,
    check_plot,
    drawable,
    writable,
)
from distdemo.cli.parse import Flags, View, choose
from distdemo.cli.parse_engine import parse_seat, placed, ranks_here, size_of_world
from distdemo.demo.parse_groups import named_ranks, parse_groups
from distdemo.errors import UsageError
from distdemo.launcher.joined.seat import Seat
from distdemo.launcher.limits import check_machine
from distdemo.launcher.records import WorldSpec
from distdemo.ops.contract import Op

OUTPUTS = (".json", ".csv", ".txt")
PLOTS = (".png", ".svg", ".html")
MOST_LAUNCHES = 1000
MOST_ITERS = 100_000  # of one size, timed or not: no median needs more
MOST_TIMES = 2_000_000
"""Of all sizes of all series: each is kept and written, in some 25 bytes."""
_DEFAULT = BenchSpec(())


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """A measurement that can be run, as far as can be told without torch.

    Attributes:
        worlds: one a backend; the timeout is how long the ranks may take to meet.
        output: the file for the result, or None.
        plot: the file for the curves, or None.
        notes: what a reader should know, in sentences.
        seat: this process's place in a world that an engine started; None: it starts its own.
    """

    spec: BenchSpec
    worlds: tuple[WorldSpec, ...]
    output: Path | None
    plot: Path | None
    view: View
    notes: tuple[str, ...] = ()
    seat: Seat | None = None


def parse_bench(flags: Flags) -> BenchRequest:
    """The measurement that these flags ask for.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    chosen = parse_ops(flags["bench_ops"])
    check_meaning(chosen, flags)
    view = parse_bench_view(flags, FORMATS)
    effort = _effort(flags)
    check_files(flags["bench_output"], OUTPUTS, flags["bench_plot"], PLOTS)
    seat = parse_seat(flags)
    size = _world_size(chosen, flags, seat)
    seat = placed(seat, size)
    worlds = _worlds(flags, size, seat)
    wanted = Wanted(flags, parse_groups(flags, size), size, ranks_here(seat, size))
    lazy = all(op.lazy for op in chosen)
    measured = [measured_world(world, lazy=lazy) for world in worlds]
    series, notes = parse_series(chosen, measured, wanted)
    spec = replace(effort, series=series)
    _check_times(spec)
    output, plot = written(flags["bench_output"], flags["bench_plot"], seat)
    return BenchRequest(spec, worlds, output, plot, view, notes, seat)


def parse_bench_view(flags: Flags, formats: Sequence[str]) -> View:
    """How to show what was measured."""
    name = flags["bench_format"] if "bench_format" in flags else flags["format"]
    return View(choose("format", name, formats), quiet=flags["quiet"], traceback=flags["traceback"])


# ----------------------------------------------------------------------------------------- files


def check_files(
    output: str | None, outputs: Sequence[str], plot: str | None, plots: Sequence[str]
) -> None:
    """Refuse files whose endings say nothing, and one for both.

    Args:
        output: of ``--output``.
        outputs: the endings that it may have.
        plot: of ``--plot``.
        plots: likewise.
    """
    examples = (f"bench{outputs[0]}", "plot.png")
    check_named("--output", output, examples[0])
    check_named("--plot", plot, examples[1])
    if output is not None and output != "-":
        check_ending("--output", output, outputs, "kind of file that can be written")
    check_plot(plot, plots)
    check_distinct({"--output": output, "--plot": plot}, examples)


def written(
    output: str | None, plot: str | None, seat: Seat | None
) -> tuple[Path | None, Path | None]:
    """The files that this process writes; in a world of others rank 0's alone does."""
    if seat is not None and seat.site != 0:
        return None, None
    return writable("--output", output, "bench.json"), drawable(plot)


# ---------------------------------------------------------------------------------------- effort


def _effort(flags: Flags) -> BenchSpec:
    """How long and how often, and what is measured beside; no series yet."""
    iters = parse_count("--iters", flags["iters"], 1, "It counts timed iterations.", MOST_ITERS)
    launches = parse_count("--launches", flags["launches"], 1, "It counts fresh worlds.")
    _check_launches(launches, iters)
    counts = "It counts iterations."
    return BenchSpec(
        (),
        iters=iters,
        warmup=parse_count("--warmup", flags["warmup"], 0, counts, MOST_ITERS),
        budget=parse_budget(flags["budget"], _DEFAULT.budget, counted=iters is not None),
        precision=parse_precision(flags["precision"]),
        launches=launches,
        check_every=parse_count("--check-every", flags["check_every"], 1, counts, MOST_ITERS) or 0,
        skew=flags["skew"],
        overlap=flags["overlap"],
        limits=not flags["no_limits"],
        profile=flags["profile"],
    )


def _check_launches(launches: int | None, iters: int | None) -> None:
    if launches is not None and launches > MOST_LAUNCHES:
        raise UsageError(
            f"--launches {launches}: {MOST_LAUNCHES} at most.",
            "Each is a world that is started anew.",
            "Try --launches 12.",
        )
    if launches is not None and iters is not None and iters < launches:
        raise UsageError(
            f"--iters {iters} is less than --launches {launches}.",
            "The iterations of each size are spread over all launches.",
            f"Try --iters {launches}.",
        )


def _check_times(spec: BenchSpec) -> None:
    """Refuse more times than one wants to keep and to write."""
    points = sum(len(series.points) for series in spec.series)
    if spec.iters is None or spec.iters * points <= MOST_TIMES:
        return
    raise UsageError(
        f"--iters {spec.iters} at {points:,} points are {spec.iters * points:,} times: "
        f"{MOST_TIMES:,} at most.",
        "A point is a size of an operation in one form on one backend; all its times are kept.",
        f"Try --iters {MOST_TIMES // points}, or fewer sizes.",
    )


def parse_precision(text: str | None) -> float:
    """A share of the median: ``5%`` or ``0.05``."""
    if text is None:
        return PRECISION
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = 0.0
    if not 0 < number < 1:
        raise UsageError(
            f"--precision {text}: that is no share between 0 and 1.",
            "A median is steady when its interval is within ± so much of it.",
            "Try --precision 5%, or 0.05.",
        )
    return number


# ---------------------------------------------------------------------------------------- worlds


def _world_size(chosen: Sequence[Op], flags: Flags, seat: Seat | None) -> int:
    """As asked for; else two, or as many as a group needs."""
    fewest = min(chosen, key=lambda op: op.smallest_world)
    least = fewest.smallest_world
    why = too_few(fewest, 1).why if least > 1 else ""
    default = max(2, named_ranks(flags["group"]))
    return size_of_world(seat, flags["bench_size"], default, least, why)


def _worlds(flags: Flags, size: int, seat: Seat | None) -> tuple[WorldSpec, ...]:
    """One a backend that was named, each once."""
    names = [word for word in flags["bench_backends"].split(",") if word.strip()]
    if not names:
        raise UsageError("--backend names nothing.", "Its value is empty.", "Try --backend gloo.")
    if seat is not None and len(set(names)) > 1:
        raise UsageError(
            f"--backend {','.join(names)}: here it is one.",
            f"This process is a rank of a world that others started, and that world has one "
            f"backend ({seat.why}).",
            "Name one backend, or add --launcher local.",
        )
    made = (parse_meeting_world(flags, name.strip(), size) for name in names)
    worlds = tuple({world.backend: world for world in made}.values())
    for world in worlds:
        check_machine(replace(world, world_size=ranks_here(seat, size)))
    return worlds
