"""Reader of ``bench`` JSON files for ``bench compare``, ``bench fit`` and ``trace``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from distdemo import ops
from distdemo.encoding import SCHEMA_VERSION, Json, decode, loads
from distdemo.errors import UsageError
from distdemo.files import MAX_BYTES, limited_memory, read_file
from distdemo.measure.records import BenchReport, Row, Series, SeriesSpec, Verdict
from distdemo.view.format import plural

SERIOUS = ("host", "processor", "cores", "gpu", "torch")
"""Circumstances that make two files hard to compare if they differ."""
TINY, HUGE = 1e-12, 1e18
"""Bounds of times in seconds and of bandwidths in bytes per second."""
MOST_BYTES = 1 << 50  # per call
MOST_RANKS = 1 << 20


@dataclass(frozen=True, slots=True)
class Recording:
    """A file of ``bench``.

    Attributes:
        file: Name of the file.
        report: Content of the file.
        series: Series with rows, by the part of their spec that must match in a comparison; the
            first of equal ones.
    """

    file: str
    report: BenchReport
    series: dict[SeriesSpec, Series]


@dataclass(frozen=True, slots=True)
class Difference:
    """A circumstance that differs between two files: a host, a release, a variable.

    Attributes:
        serious: True if it makes the two files hard to compare.
    """

    name: str
    old: str
    new: str
    serious: bool = False


def read(path: Path) -> Recording:
    """Return the recording in a file.

    Raises:
        UsageError: The file can't be read, or is not a ``bench`` file with times.
    """
    try:
        with limited_memory():
            document = loads(read_file(path), max_bytes=MAX_BYTES)
        report = _decoded(document)
    except (OSError, ValueError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or str(error)[:200]
        what = "can't be read" if isinstance(error, OSError) else "is not a file of distdemo bench"
        raise UsageError(
            f"{path} {what}.",
            f"{reason or 'It needs too much memory'}.",
            "Create one: distdemo bench all-reduce --output run.json.",
        ) from error
    series: dict[SeriesSpec, Series] = {}
    for each in report.measured:
        series.setdefault(comparable(each.spec), each)
    return Recording(str(path), report, series)


def _decoded(document: Json) -> BenchReport:
    """Return the report in a document.

    Raises:
        ValueError: It isn't a report of ``bench`` with plausible times and sizes.
    """
    command = document.get("command") if isinstance(document, dict) else None
    if command != "bench":
        raise ValueError(f"It is a document of {command!r}")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(f"Its format has version {version}, not {SCHEMA_VERSION}")
    report = decode(BenchReport, document)
    times = [time for row in report.rows for launch in row.times_s for time in launch]
    if not times or not all(any(row.times_s) for row in report.rows):
        raise ValueError("It has no times")
    for row in report.rows:
        times += [row.median_s, row.p10_s, row.p90_s, row.p99_s, row.min_s, row.max_s]
        times += row.interval_s or ()
    limits = [limit for setup in report.setups for limit in setup.limits]
    rates = [limit.bandwidth_bytes_per_s for limit in limits]
    times += [limit.latency_s for limit in limits if limit.latency_s is not None]
    if not all(TINY < each < HUGE for each in (*times, *rates)):
        raise ValueError("It has times or bandwidths that can't be right")
    if not all(0 <= row.size_bytes < MOST_BYTES for row in report.rows):
        raise ValueError("It has sizes that can't be right")
    unknown = {each.spec.op.op for each in report.series} - set(ops.REGISTRY)
    if unknown:
        raise ValueError(f"It has an unknown operation, {min(unknown)}")
    sizes = {each.spec.group_size for each in report.series}
    sizes |= {each.spec.world_size for each in report.series}
    if not all(0 < each <= MOST_RANKS for each in sizes):
        raise ValueError(f"It has worlds of {max(sizes):,} ranks")
    return report


def disturbance(report: BenchReport, series: Series) -> str:
    """Return why the times of a series aren't the machine's own, or "" if nothing disturbed it.

    That is the sentence with which ``bench`` judged its rows: other programs took time from the
    ranks, or a rank got less of a core than the other ranks.
    """
    setup = report.setup(series.spec.backend)
    slowed = bool(setup and setup.load and setup.load.slowed_ranks)
    reasons = [
        row.judgement.why
        for row in series.rows
        if row.judgement is not None
        and (row.verdict is Verdict.DISTURBED or (slowed and row.verdict is Verdict.SLOW))
    ]
    return reasons[0] if reasons else ""


def comparable(spec: SeriesSpec, *, ranks: bool = True) -> SeriesSpec:
    """Return the part of a spec that must match in a comparison.

    Args:
        spec: Spec of a series.
        ranks: True if the number of ranks and the root must match too.
    """
    call = replace(spec.op, call="", group_size=0)
    if not ranks:
        spec, call = replace(spec, world_size=0, groups=()), replace(call, root=None)
    return replace(spec, op=call, sizes_bytes=(), refused="")


def launches(row: Row) -> dict[int, float]:
    """Return the median in seconds of each launch that has this size, by the launch's index."""
    return {index: median(times) for index, times in enumerate(row.times_s) if times}


def differences(old: Recording, new: Recording) -> list[Difference]:
    """Return the differences in environment, releases and start of ranks, serious ones first."""

    def about(recording: Recording) -> dict[str, str]:
        report = recording.report
        facts = {name: str(each) for name, each in report.environment.items()} | report.versions
        for setup in report.setups:
            facts[f"start of {setup.backend} ranks"] = f"{setup.engine} {setup.start_method}"
        return facts

    before, after = about(old), about(new)
    changed = [
        Difference(name, one, other, name in SERIOUS)
        for name in {**before, **after}
        if (one := before.get(name, "not set")) != (other := after.get(name, "not set"))
    ]
    return sorted(changed, key=lambda each: not each.serious)


def traits(spec: SeriesSpec) -> dict[str, str]:
    """Return the traits of a series by name; empty where one doesn't apply."""
    op, groups, placement = spec.op, "", ""
    if len(spec.groups) == 1:
        groups = f"group {','.join(map(str, spec.groups[0]))}"
    elif spec.groups:
        groups = f"{len(spec.groups)} groups of {plural(spec.group_size, 'rank')}"
    if op.pattern is None:  # in p2p, each rank has only one buffer
        if op.in_place:
            placement = "in place"
        elif spec.operation.has_both(spec.smallest):
            placement = "out of place"
    return {
        "op": spec.operation.command,
        "form": spec.form,
        "algorithm": spec.algorithm,
        "backend": spec.backend,
        "device": "" if spec.device == "cpu" else spec.device,
        "ranks": plural(spec.world_size, "rank"),
        "group": groups,
        "dtype": op.dtype,
        "reduce op": op.reduce_op or "",
        "root": "" if op.root is None else f"root {op.root}",
        "pair": f"{op.src} to {op.dst}" if op.pattern == "pair" else "",
        "async": "async" if op.async_op else "",
        "placement": placement,
    }


def title(spec: SeriesSpec, *, ranks: bool = True) -> str:
    """Return ``all-reduce, gloo, 2 ranks, float32, sum, in place``.

    Args:
        spec: Spec of a series.
        ranks: True to include the number of ranks and the root.
    """
    shown = traits(spec)
    if not ranks:
        del shown["ranks"], shown["root"]
    return ", ".join(filter(None, shown.values()))
