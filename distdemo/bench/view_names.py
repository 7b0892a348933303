"""What a series is called: all of it over its table, only what tells it from others in a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distdemo.bench.old_records import BenchReport, Series, SeriesSpec
from distdemo.ops.spec import OpSpec
from distdemo.view.numbers import plural

FEW = 3  # ops that are named in one line
UNSAID = ("tensor", "plain")  # forms of ops that have no other
TELLING = (
    *("op", "backend", "form", "placement", "device", "reduce op", "async", "dtype"),
    *("ranks", "group", "root", "pair"),
)
"""Traits in the order in which they are taken to tell series apart."""
SMALLEST_NAME = ("op", "backend")  # of a series that nothing tells from others


def op_spec(spec: SeriesSpec) -> OpSpec | None:
    """The op at the smallest size, of the first group; None if the backend can't."""
    return spec.points[0].specs[0] if spec.points else None


def traits(spec: SeriesSpec) -> dict[str, str]:
    """What the series is, by what it says; what does not apply is empty."""
    world, op = spec.world, op_spec(spec)
    found = {
        "op": spec.command,
        "form": "" if spec.form in UNSAID else spec.form,
        "backend": world.backend,
        "device": "" if world.device == "cpu" else world.device,
        "ranks": plural(world.world_size, "rank"),
        "group": _groups(spec),
    }
    if op is not None:
        found |= _settings(spec, op)
    return found | {"placement": _placement(spec)}


def _settings(spec: SeriesSpec, op: OpSpec) -> dict[str, str]:
    pair = op.src is not None and op.pattern != "ring"
    return {
        "dtype": op.dtype if moves(spec) else "",
        "reduce op": op.reduce_op or "",
        "root": "" if op.root is None else f"root {op.root}",
        "pair": f"{op.src} to {op.dst}" if pair else "",
        "async": "async" if op.async_op else "",
    }


def moves(spec: SeriesSpec) -> bool:
    """Whether any data does; in a barrier none."""
    return any(point.size for point in spec.points)


def _placement(spec: SeriesSpec) -> str:
    """Nothing of an op between two ranks: each of them has but one buffer."""
    op = op_spec(spec)
    if op is not None and op.pattern is not None:
        return ""
    if spec.in_place:
        return "in place"
    return "out of place" if spec.both else ""


def _groups(spec: SeriesSpec) -> str:
    if not spec.points:
        return ""
    specs = spec.points[0].specs
    if len(specs) > 1:
        return f"{len(specs)} groups of {plural(specs[0].group_size, 'rank')}"
    members = specs[0].members
    return "" if members is None else f"group {','.join(map(str, members))}"


def title(spec: SeriesSpec, dot: str) -> str:
    """Everything about a series in one line."""
    return f" {dot} ".join(filter(None, traits(spec).values()))


def labels(series: Sequence[Series]) -> list[str]:
    """A short name for each: as little as tells it from the others, else its op and backend."""
    return [" ".join(parts) for parts in label_parts(series)]


def label_parts(series: Sequence[Series]) -> list[tuple[str, ...]]:
    """The same in parts that are not to be broken."""
    all_traits = [traits(each.spec) for each in series]
    names: list[str] = []
    for name in TELLING:
        if len(set(_parts([*names, name], all_traits))) > len(set(_parts(names, all_traits))):
            names.append(name)
    found = _parts(names or SMALLEST_NAME, all_traits)
    return [parts or (t["op"],) for parts, t in zip(found, all_traits, strict=True)]


def _parts(names: Sequence[str], all_traits: Sequence[dict[str, str]]) -> list[tuple[str, ...]]:
    return [tuple(filter(None, (t.get(name, "") for name in names))) for t in all_traits]


def shared(report: BenchReport, dot: str, *, but: Sequence[str] = ()) -> str:
    """What all series have in common, in one line.

    Args:
        report: with a series at least.
        dot: between two of them.
        but: what to leave out.
    """
    all_traits = [traits(each.spec) for each in report.series]
    same = [n for n in _names(all_traits) if not _differs(n, all_traits) and n not in but]
    return f" {dot} ".join(filter(None, (all_traits[0].get(name, "") for name in same)))


def headline(report: BenchReport, dot: str) -> str:
    """The whole measurement in one line: its ops and backends, and what all have in common."""
    if not report.series:
        return "nothing"
    ops = list(dict.fromkeys(each.spec.command for each in report.series))
    lead = [", ".join(ops) if len(ops) <= FEW else f"{len(ops)} ops"]
    lead.append(", ".join(dict.fromkeys(each.spec.backend for each in report.series)))
    rest = shared(report, dot, but=("op", "backend", "placement"))
    return f" {dot} ".join(filter(None, [*lead, rest]))


def _names(all_traits: Sequence[dict[str, str]]) -> list[str]:
    return list(dict.fromkeys(name for each in all_traits for name in each))


def _differs(name: str, all_traits: Sequence[dict[str, str]]) -> bool:
    """Whether it tells series apart. What a refused series does not say is no difference."""
    return len({each[name] for each in all_traits if name in each}) > 1


def measured(report: BenchReport) -> list[Series]:
    """The series that have rows."""
    return [series for series in report.series if series.rows]


def with_sizes(report: BenchReport) -> BenchReport:
    """The same without what has no size, as a barrier: it has no place on an axis of sizes."""
    kept = [replace(s, rows=tuple(row for row in s.rows if row.size)) for s in report.series]
    return replace(report, series=tuple(kept))
