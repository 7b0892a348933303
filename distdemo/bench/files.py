"""Reader of ``bench`` JSON files for ``bench compare`` and ``bench fit``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from distdemo import ops
from distdemo.bench.records import BenchReport, Series, SeriesSpec
from distdemo.encoding import SCHEMA_VERSION, Json, decode, loads
from distdemo.errors import UsageError
from distdemo.files import MAX_BYTES, limited_memory, read_file

CIRCUMSTANCES = ("host", "processor", "cores", "gpu", "torch")
"""Circumstances that make two files hard to compare if they differ."""
TINY, HUGE = 1e-12, 1e18
"""Bounds of times in seconds."""
MOST_BYTES = 1 << 50  # per call
MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class BenchFile:
    """A file of ``bench``.

    Attributes:
        file: Name of the file.
        report: Content of the file.
    """

    file: str
    report: BenchReport

    @cached_property
    def series(self) -> dict[SeriesSpec, Series]:
        """Series with rows, by the part of their spec that must match; the first of equal ones."""
        by_spec: dict[SeriesSpec, Series] = {}
        for series in self.report.measured:
            by_spec.setdefault(comparable(series.spec), series)
        return by_spec


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
    return BenchFile(str(path), report)


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
    for row in report.rows:
        times = [seconds for launch in row.times_s for seconds in launch]
        if not all(TINY < seconds < HUGE for seconds in (*times, row.median_s)):
            raise ValueError("It has times that can't be right")
        if not 0 <= row.size_bytes < MOST_BYTES:
            raise ValueError("It has sizes that can't be right")
    for series in report.series:
        spec = series.spec
        if spec.op.op not in ops.REGISTRY:
            raise ValueError(f"It has an unknown operation, {spec.op.op}")
        if not 0 < spec.world_size <= MOST_RANKS:
            raise ValueError(f"It has a world of {spec.world_size:,} ranks")
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
        spec = replace(spec, world_size=0)
    return replace(spec, op=call, sizes_bytes=(), refused="")


def differences(old: BenchFile, new: BenchFile) -> Iterator[str]:
    """Yield a sentence for each circumstance that differs between two files."""
    before, after = ({**file.report.environment, **file.report.versions} for file in (old, new))
    for name in CIRCUMSTANCES:
        if before.get(name) != after.get(name):
            yield f"{name}: {before.get(name)} in {old.file}, {after.get(name)} in {new.file}."
