"""Verdicts on rows, and the answer at the top of a report."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from benches import GLOO, quiet, report, row, rows, setup, with_changes
from golden import golden

from distdemo.backends.contract import Transport
from distdemo.bench.answer import answer, errors
from distdemo.bench.judge import judge
from distdemo.bench.records import (
    ANSWERS,
    Answer,
    BenchReport,
    Setup,
    SizeRow,
    SizeVerdict,
    TransportLimit,
)
from distdemo.bench.view import bench_view
from distdemo.encoding import decode, encode
from distdemo.launcher.records import Verdict as WorldVerdict
from distdemo.launcher.records import WorldReport, WorldSpec

STREAMS = {5.2e9: 2, 7e9: 1, 12e9: 0}
"""Measured bandwidths of that machine with all ranks at once, and the number of sizes that may look
normal if all take five times as long."""
CLOSE, LATENCY, BELOW = SizeVerdict.CLOSE, SizeVerdict.LATENCY_BOUND, SizeVerdict.BELOW
OVERSUBSCRIBED, SLOW, UNKNOWN = SizeVerdict.OVERSUBSCRIBED, SizeVerdict.SLOW, SizeVerdict.UNKNOWN
VARIES, DISTURBED = SizeVerdict.VARIES, SizeVerdict.DISTURBED
MIB = 1 << 20


def verdicts(made: list[SizeRow], where: Setup, n: int = 2) -> list[SizeVerdict]:
    judgements = [judge(one, made, where, n) for one in made]
    return [UNKNOWN if judgement is None else judgement.verdict for judgement in judgements]


@pytest.mark.parametrize("bandwidth", STREAMS)
def test_a_healthy_backend_is_normal_and_one_five_times_slower_is_not(bandwidth):
    healthy = verdicts(rows(GLOO), setup(bandwidth))
    assert healthy[:3] == [LATENCY] * 3
    assert {ANSWERS[verdict] for verdict in healthy} == {Answer.NORMAL}
    slow = verdicts(rows(GLOO, slower=5), setup(bandwidth))
    assert sum(verdict is not SLOW for verdict in slow) <= STREAMS[bandwidth]


DEVICE = setup(1.4e12, latency=None, transport=Transport.DEVICE_COPY, device="cuda", cores=16)
ALONE = Setup("gloo", "cpu", 2, cores=2, ranks_per_host=2)


@pytest.mark.parametrize(
    ("times", "where", "expected"),
    [
        ({MIB: MIB / 7e9 / 0.9}, setup(), [CLOSE]),
        ({MIB: MIB / 14e9}, setup(), [CLOSE]),
        ({8: 56e-6, 8192: 60e-6}, setup(), [LATENCY] * 2),
        ({8: 1e-3, MIB: 4e-3}, setup(2e9, ranks=4), [OVERSUBSCRIBED] * 2),
        ({65536: 77e-6}, setup(), [BELOW]),
        ({8: 15e-6, 1 << 26: 5e-3}, DEVICE, [LATENCY, BELOW]),
        ({1 << 26: 5e-3}, setup(1e9, device="cuda"), [CLOSE]),
        ({8: 20e-6, 1 << 18: 300e-6}, setup(1e11, latency=None), [LATENCY, SLOW]),
        ({8: 1e-4}, ALONE, [UNKNOWN]),
        ({8: 1e-4}, replace(ALONE, ranks_per_host=4), [OVERSUBSCRIBED]),
        ({0: 1e-4}, setup(), [UNKNOWN]),
    ],
)
def test_the_verdict_of_every_size(times, where, expected):
    n = where.world_size
    assert verdicts(rows(times, n), where, n) == expected


def test_an_interval_around_the_limit_or_a_very_wide_one_varies():
    """A rank's machine is quiet here, so only the interval and the limit decide."""
    for slower, noise, expected in (
        (1, 0.4, BELOW),
        (1, 0.6, VARIES),
        (5, 0.7, VARIES),
        (9, 0.4, SLOW),
        (6, 0.02, SLOW),
    ):
        made = rows(GLOO, slower=slower, noise=noise)
        assert verdicts(made, setup())[-1] is expected, (slower, noise)
    limit_s = 1.4e-3  # of 1 MiB at 7 GB/s
    for factor, expected in ((0.5, BELOW), (1.02, SLOW), (2, SLOW)):
        steady = rows({MIB: limit_s * factor}, noise=0.03)
        assert verdicts(steady, setup()) == [expected], "a steady median is on either side"


def test_a_disturbance_is_measured_and_never_inferred_from_the_times():
    slow, wide = rows(GLOO, slower=9), rows(GLOO, noise=0.9)
    for load, expected in (
        (quiet(taken_cores=0.47), DISTURBED),
        (quiet(copies_bytes_per_s=(9e9, 4e9, 9e9, 4e9)), DISTURBED),
        (quiet(taken_cores=None, core_shares=(0.6, 0.7)), DISTURBED),
        (quiet(taken_cores=0.3, slowed_ranks=(1,), core_shares=(0.98, 0.5)), SLOW),
    ):
        for made in (rows(GLOO), slow, wide, [row(1e-4, 0)]):
            assert set(verdicts(made, setup(load=load))) == {expected}, load
    assert DISTURBED not in verdicts(wide, setup())
    shared = quiet(4, taken_cores=None, core_shares=(0.5, 0.5, 0.5, 0.3), slowed_ranks=(3,))
    for load, expected in ((shared, OVERSUBSCRIBED), (quiet(4, taken_cores=0.4), DISTURBED)):
        crowded = verdicts(rows(GLOO, 4, slower=20), setup(ranks=4, load=load), 4)
        assert set(crowded) == {expected}, "ranks that share cores are not slowed"


# ----------------------------------------------------------------------------------- the answer

FAILED = WorldReport(
    WorldSpec(2), (), WorldVerdict("Rank 1 died.", "SIGKILL.", ""), 1.0, "fork", ""
)
BUSY = quiet(taken_cores=0.47)
SHARED = quiet(4, core_shares=(0.5,) * 4)
SLOWED = quiet(slowed_ranks=(1,), core_shares=(0.99, 0.49))
QUICK = rows({8: 56e-6, 1024: 70e-6})
ANSWERED: tuple[tuple[BenchReport, str, bool | None, Answer | None], ...] = (
    (
        report(rows(GLOO)),
        "Normal: busbw up to 5.38 GB/s at 4 MiB (77% of a TCP stream); medians within ±1.0%; ",
        True,
        Answer.NORMAL,
    ),
    (
        report([*QUICK, *rows({MIB: 9e-3}), *rows({4 * MIB: 1e-3})]),
        "Slow at 1 MiB: 117 MB/s is 2% of the 7.00 GB/s of a TCP stream; its median is at least ",
        None,
        Answer.SLOW,
    ),
    (
        report(rows(GLOO), setup(load=SLOWED)),
        "Slow: rank 1 repeatedly got 49% of a core; the best rank got 99%. Check what",
        None,
        Answer.SLOW,
    ),
    (
        report(rows({8: 1e-3}, 4, noise=0.5), setup(ranks=4, load=SHARED)),
        (
            "Measured: busbw up to 12.0 kB/s at 8 B (<1% of a TCP stream); medians within ±50%; 4 "
            "elements verified. Not judged: 4 ranks share 2 cores, and take turns."
        ),
        True,
        Answer.MEASURED,
    ),
    (
        report([row(1e-4, 0)]),
        "Measured: all-reduce in 100 µs; medians within ±1.0%. Not judged: there is",
        True,
        Answer.MEASURED,
    ),
    (
        report(rows({8: 56e-6}), left_out=(32, 128)),
        (
            "Normal: busbw up to 143 kB/s at 8 B (<1% of a TCP stream); medians within ±1.0%; 4 "
            "elements verified. The budget was spent before 2 of 3 sizes were measured."
        ),
        None,
        Answer.NORMAL,
    ),
    (report([row(1e-4, 64, wrong=3)]), "all-reduce gloo is wrong at 64 B. 3 of 32", False, None),
    (report([]), "0 of 0 sizes were measured.", False, None),
    (report([], interrupted=True), "Interrupted: 0 of 0 sizes were measured.", False, None),
    (report(rows({8: 1e-4}), world=FAILED), "Rank 1 died. 1 of 1 size were measured", False, None),
)


@pytest.mark.parametrize(("made", "says", "good", "value"), ANSWERED)
def test_the_answer_comes_first_and_is_in_the_document(made, says, good, value):
    text, ok = answer(made)
    assert (text[: len(says)], ok, made.answer) == (says, good, value)
    document = encode(made)
    assert document["answer"] == value
    if made.world is None:
        assert decode(BenchReport, document).ranges == made.ranges


def test_fail_on_names_the_answers_that_fail():
    for load, fail_on, failing in (
        (BUSY, (Answer.SLOW, Answer.DISTURBED), [Answer.DISTURBED]),
        (BUSY, (Answer.SLOW,), []),
        (SLOWED, (Answer.SLOW,), [Answer.SLOW]),
    ):
        made = report(rows(GLOO), setup(load=load))
        made = replace(made, spec=replace(made.spec, fail_on=fail_on))
        assert (made.failing, made.ok) == (failing, not failing)
        assert [error.what for error in errors(made)] == [
            f"--fail-on {name}: some sizes have this answer." for name in failing
        ]


# ----------------------------------------------------------------------------------- the reports


def everything() -> BenchReport:
    """Return a report with every kind of content."""
    memory = TransportLimit(Transport.MEMORY_COPY, 9e9, 1 << 22)
    whole = report(rows({8: 56e-6, 65536: 77e-6, MIB: 210e-6}))
    first = whole.series[0]
    ring = replace(first, spec=replace(first.spec, algorithm="ring"))
    ring = replace(ring, rows=tuple(replace(row, judgement=None) for row in ring.rows))
    other = replace(first, spec=replace(first.spec, backend="mpi"), error="A world failed.")
    scatter = with_changes(first.spec, op="scatter", refused="It can't.")
    refused = replace(first, rows=(), spec=scatter)
    return replace(
        whole,
        series=(first, ring, other, refused),
        setups=(
            replace(setup(), limits=(memory, *setup().limits)),
            replace(setup(12e9, transport=Transport.MEMORY_COPY, latency=None), backend="mpi"),
        ),
        notes=("A note.",),
    )


REPORTS = {
    "bench_varies": report([*rows({8: 56e-6}), *rows({MIB: 210e-6}, noise=0.6)]),
    "bench_disturbed": report(rows({8: 56e-6, MIB: 210e-6}, noise=0.4), setup(load=BUSY)),
    "bench_all": everything(),
}


@pytest.mark.parametrize("name", REPORTS)
def test_the_report(name):
    golden(Path(__file__).parent / "golden" / f"{name}.txt", partial(bench_view, REPORTS[name]))
