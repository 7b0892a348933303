"""Verdicts on rows, and the answer at the top of a report."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from benches import GLOO, report, row, rows, setup
from golden import golden
from recordings import with_changes

from distdemo.backends.contract import Transport
from distdemo.bench.answer import answer, headline, series_names
from distdemo.bench.judge import judge
from distdemo.bench.view import _verdicts, bench_view
from distdemo.launcher.records import Verdict as WorldVerdict
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.measure.records import Limit, Overlap, RankSkew, Row, Setup, Verdict

STREAMS = {5.2e9: 2, 7e9: 1, 12e9: 0}
"""Measured bandwidths of that machine with all ranks at once, and the number of sizes that may look
normal if all take five times as long."""
CLOSE, LATENCY, BELOW = Verdict.CLOSE, Verdict.LATENCY_BOUND, Verdict.BELOW
OVERSUBSCRIBED, SLOW, UNKNOWN = Verdict.OVERSUBSCRIBED, Verdict.SLOW, Verdict.UNKNOWN
MIB = 1 << 20


def verdicts(made: list[Row], where: Setup, n: int = 2) -> list[Verdict | None]:
    found = (judge(each, made, where, n) for each in made)
    return [None if each is None else each.verdict for each in found]


@pytest.mark.parametrize("bandwidth", STREAMS)
def test_a_healthy_backend_is_normal_and_one_five_times_slower_is_not(bandwidth):
    healthy = verdicts(rows(GLOO), setup(bandwidth))
    assert healthy[:3] == [LATENCY] * 3
    assert all(each is not None and each.is_normal for each in healthy)
    slow = verdicts(rows(GLOO, slower=5), setup(bandwidth))
    assert sum(each is not SLOW for each in slow) <= STREAMS[bandwidth]


DEVICE = setup(1.4e12, latency=None, transport=Transport.DEVICE_COPY, device="cuda", cores=16)


def test_the_verdict_of_every_size():
    alone = Setup("gloo", "cpu", 2, cores=2, ranks_per_host=2)
    for times, where, expected in (
        ({MIB: MIB / 7e9 / 0.9}, setup(), [CLOSE]),
        ({MIB: MIB / 14e9}, setup(), [CLOSE]),
        ({8: 56e-6, 8192: 60e-6}, setup(), [LATENCY] * 2),
        ({8: 1e-3, MIB: 4e-3}, setup(2e9, ranks=4), [OVERSUBSCRIBED] * 2),
        ({65536: 77e-6}, setup(), [BELOW]),
        ({8: 15e-6, 1 << 26: 5e-3}, DEVICE, [LATENCY, BELOW]),
        ({1 << 26: 5e-3}, setup(1e9, device="cuda"), [CLOSE]),
        ({8: 20e-6, 1 << 18: 300e-6}, setup(1e11, latency=None), [LATENCY, SLOW]),
        ({8: 1e-4}, alone, [Verdict.UNKNOWN]),
        ({8: 1e-4}, replace(alone, ranks_per_host=4), [OVERSUBSCRIBED]),
    ):
        n = where.world_size
        assert verdicts(rows(times, n), where, n) == expected


def test_disturbed_medians_and_ops_without_data():
    """Half of the iterations waited for a core; the rest show the backend's speed."""
    disturbed = replace(row(4e-3, MIB), p10_s=0.2e-3)
    assert verdicts([*rows(GLOO)[:-3], disturbed], setup())[-1] is Verdict.DISTURBED
    assert judge(row(1e-4, 0), [], setup(), 2) is None
    assert judge(row(1e-4, 1024, 1), [], setup(ranks=1), 1) is None


# ----------------------------------------------------------------------------------- the answer

FAILED = WorldReport(
    WorldSpec(2), (), WorldVerdict("Rank 1 died.", "SIGKILL.", ""), 1.0, "fork", ""
)


ANSWERS = (
    (report(rows(GLOO)), "Normal: busbw up to 5.38 GB/s at 4 MiB (77% of a TCP", True),
    (report(rows(GLOO, slower=5)), "Not normal: 8 of 9 sizes (8 B to 32 MiB): unus", False),
    (report(rows(GLOO, 4), setup(2e9, ranks=4)), "Not normal: 4 of 9 sizes (8 B to 64 K", False),
    (report(rows({8: 1e-3}, 4, noise=0.5), setup(ranks=4)), "Not normal: 1 of 1 size (8 B)", False),
    (report(rows(GLOO, noise=0.5)), "Not measurable now: 9 of 9 sizes not steady with", False),
    (report(rows(GLOO), Setup("gloo", "cpu", 2)), "Measured: busbw up to 5.38 GB/s", True),
    (report([row(1e-4, 0)]), "Measured: all-reduce in 100 µs. Not judged: there is", True),
    (report([row(1e-4, 64, wrong=3)]), "all-reduce gloo is wrong at 64 B. 3 of 32 elem", False),
    (report([]), "0 of 0 sizes were measured.", False),
    (report([], interrupted=True), "Interrupted: 0 of 0 sizes were measured.", False),
    (report(rows({8: 1e-4}), world=FAILED), "Rank 1 died. 1 of 1 size were measured", False),
)


def test_the_answer_comes_first():
    for made, says, good in ANSWERS:
        text, ok = answer(made)
        assert (text[: len(says)], ok) == (says, good)


def test_rows_that_are_not_steady_get_no_advice():
    for noise, advised in ((0.5, False), (0.01, True)):
        slow = report(rows(GLOO, slower=5, noise=noise))
        assert ("doctor" in answer(slow)[0]) == advised
        assert any("doctor" in line.plain for line in _verdicts(slow)) == advised


def test_series_are_named_by_the_traits_that_distinguish_them():
    one = report(rows(GLOO))
    spec = one.series[0].spec
    mpi = replace(one.series[0], spec=replace(spec, backend="mpi"))
    gather = replace(one.series[0], spec=with_changes(spec, op="all_gather", in_place=False))
    assert list(series_names(one.series).values()) == ["all-reduce gloo"]
    assert list(series_names([one.series[0], mpi]).values()) == ["gloo", "mpi"]
    both = replace(one, series=(one.series[0], mpi, gather))
    assert list(series_names(both.series).values()) == [
        "all-reduce gloo",
        "all-reduce mpi",
        "all-gather gloo",
    ]
    assert headline(both) == "all-reduce, all-gather · gloo, mpi · 2 ranks · float32 · sum"


# ----------------------------------------------------------------------------------- the reports

GOLDEN = Path(__file__).parent / "golden"


def everything():
    """Return a report with every kind of content."""
    memory = Limit(Transport.MEMORY_COPY, 9e9, 1 << 22)
    whole = report(rows({8: 56e-6, 65536: 77e-6, MIB: 210e-6}))
    first = whole.series[0]
    overlapped = tuple(replace(each, overlap=Overlap(1e-4, 1e-4, 1.2e-4)) for each in first.rows)
    late = (RankSkew(0, 0.0, 1e-6, 0.1, 5e-5, 4e-4), RankSkew(1, 4e-4, 6e-4, 0.9, 5e-5, 0.0, True))
    other = replace(first, spec=replace(first.spec, backend="mpi"), error="A world failed.")
    scatter = with_changes(first.spec, op="scatter", refused="It can't.")
    refused = replace(first, rows=(), spec=scatter)
    return replace(
        whole,
        series=(replace(first, rows=overlapped, skew=late), other, refused),
        setups=(
            replace(setup(), limits=(memory, *setup().limits)),
            replace(setup(12e9, transport=Transport.MEMORY_COPY, latency=None), backend="mpi"),
        ),
        notes=("A note.",),
    )


def test_the_report():
    noisy = report(rows({8: 56e-6, MIB: 210e-6}, noise=0.4))
    for name, made in (("bench_noisy", noisy), ("bench_all", everything())):
        golden(GOLDEN / f"{name}.txt", partial(bench_view, made))
