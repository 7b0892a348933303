"""Reader of ``bench`` JSON files for ``bench compare`` and ``bench fit``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from distdemo import ops
from distdemo.bench.records import BenchReport, Series, SeriesSpec, SizeRow
from distdemo.encoding import SCHEMA_VERSION, Json, decode, loads
from distdemo.errors import UsageError
from distdemo.files import MAX_BYTES, limited_memory, read_file
from distdemo.measure.statistics import median

SERIOUS = ("host", "processor", "cores", "gpu", "torch")
"""Circumstances that make two files hard to compare if they differ."""
TINY, HUGE = 1e-12, 1e18
"""Bounds of times in seconds and of bandwidths in bytes per second."""
MOST_BYTES = 1 << 50  # per call
MOST_RANKS = 1 << 20


@dataclass(frozen=True, slots=True)
class BenchFile:
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


def read(path: Path) -> BenchFile:
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
    return recording(str(path), report)


def recording(file: str, report: BenchReport) -> BenchFile:
    """Return the recording of a report."""
    by_key: dict[SeriesSpec, Series] = {}
    for series in report.measured:
        by_key.setdefault(comparable(series.spec), series)
    return BenchFile(file, report, by_key)


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
    if not report.rows or not all(any(row.times_s) for row in report.rows):
        raise ValueError("It has no times")
    figures = [seconds for row in report.rows for launch in row.times_s for seconds in launch]
    for row in report.rows:
        figures += [row.median_s, row.p10_s, row.p90_s, row.p99_s, row.min_s, row.max_s]
        figures += row.interval_s or ()
    for limit in (limit for setup in report.setups for limit in setup.limits):
        figures.append(limit.bandwidth_bytes_per_s)
        figures += [] if limit.latency_s is None else [limit.latency_s]
    if not all(TINY < figure < HUGE for figure in figures):
        raise ValueError("It has times or bandwidths that can't be right")
    if not all(0 <= row.size_bytes < MOST_BYTES for row in report.rows):
        raise ValueError("It has sizes that can't be right")
    specs = [series.spec for series in report.series]
    unknown = {spec.op.op for spec in specs} - set(ops.REGISTRY)
    if unknown:
        raise ValueError(f"It has an unknown operation, {min(unknown)}")
    sizes = {size for spec in specs for size in (spec.group_size, spec.world_size)}
    if not all(0 < size <= MOST_RANKS for size in sizes):
        raise ValueError(f"It has worlds of {max(sizes):,} ranks")
    return report


def comparable(spec: SeriesSpec, *, ranks: bool = True) -> SeriesSpec:
    """Return the part of a spec that must match in a comparison.

    Args:
        spec: Spec of a series.
        ranks: True if the number of ranks and the root must match too.
    """
    call = replace(spec.op, call="", group_size=0)
    if not ranks:
        call = replace(call, root=None)
        spec = replace(spec, world_size=0, groups=())
    return replace(spec, op=call, sizes_bytes=(), refused="")


def launch_medians(row: SizeRow) -> list[float]:
    """Return the median in seconds of each launch that has this size."""
    return [median(times) for times in row.times_s if times]


def differences(old: BenchFile, new: BenchFile) -> list[Difference]:
    """Return the differences in environment, releases and start of ranks, serious ones first."""
    before = _circumstances(old.report)
    after = _circumstances(new.report)
    changed = [
        Difference(name, one, other, name in SERIOUS)
        for name in {**before, **after}
        if (one := before.get(name, "not set")) != (other := after.get(name, "not set"))
    ]
    return sorted(changed, key=lambda difference: not difference.serious)


def _circumstances(report: BenchReport) -> dict[str, str]:
    facts = {name: str(fact) for name, fact in report.environment.items()} | report.versions
    for setup in report.setups:
        facts[f"start of {setup.backend} ranks"] = f"{setup.engine} {setup.start_method}"
    return facts
