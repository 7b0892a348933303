"""Answers to "Is this normal?", of rows and of whole reports."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from benches import document, one_series, report, row, setup, with_changes
from golden import golden

from distdemo.bench.judge import judge
from distdemo.bench.records import Answer, BenchReport, BenchSpec
from distdemo.bench.view import answer_text, bench_view, fastest_of
from distdemo.encoding import decode, encode
from distdemo.launcher.records import Verdict, WorldReport, WorldSpec

# Bytes and seconds of an all_reduce between two ranks over gloo, measured on two cores in one run.
GLOO = {
    8: 56e-6,
    1024: 70e-6,
    65536: 77e-6,
    1 << 20: 210e-6,
    1 << 22: 780e-6,
    1 << 24: 6.0e-3,
    1 << 25: 14.6e-3,
}
STREAMS = {5.2e9: 2, 7e9: 1, 12e9: 0}
"""Measured bandwidths of that machine with all ranks at once, and the number of sizes that may look
normal if all take five times as long."""
MIB = 1 << 20
SLOW, DISTURBED, VARIES, NORMAL, MEASURED = Answer


@pytest.mark.parametrize("bandwidth", STREAMS)
def test_a_healthy_backend_is_normal_and_one_five_times_slower_is_not(bandwidth):
    for factor, answer, others in ((1, NORMAL, 0), (5, SLOW, STREAMS[bandwidth])):
        rows = [row(factor * seconds, size) for size, seconds in GLOO.items()]
        answers = [judge(one, setup(bandwidth)).answer for one in rows]
        assert sum(one is not answer for one in answers) <= others, answers


def test_the_answer_follows_from_the_interval_the_limit_and_the_machine():
    slow_s = 145e-6 + 6 * MIB / 7e9
    few = replace(row(1.0, MIB), interval_s=None)
    for one, where, answer in (
        (row(0.9 * slow_s, MIB), setup(), NORMAL),
        (row(0.9 * slow_s, MIB, noise=0.2), setup(), VARIES),  # partly slow
        (row(0.3 * slow_s, MIB, noise=0.7), setup(), VARIES),  # wide
        (row(2.0 * slow_s, MIB, noise=0.2), setup(), SLOW),
        (row(1.01 * slow_s, MIB, noise=0.03), setup(), SLOW),  # a steady median is on either side
        (row(2.0 * slow_s, MIB), setup(taken_cores=0.47), DISTURBED),
        (row(2.0 * slow_s, MIB), setup(cores=1), MEASURED),  # ranks share a core
        (row(2.0 * slow_s, MIB), setup(limit=None), MEASURED),
        (row(1e-4, 0, busbw_factor=0.0), setup(), MEASURED),
        (row(1e-4, 0, busbw_factor=0.0, noise=0.7), setup(), VARIES),
        (few, setup(), MEASURED),
        (few, setup(taken_cores=None), MEASURED),
    ):
        assert judge(one, where).answer is answer, (one.median_s, where)


def test_only_an_interval_below_all_others_is_the_fastest():
    quick, slow, near = row(1e-4, MIB), row(2e-4, MIB), row(1.01e-4, MIB)
    assert fastest_of([slow, quick]) is quick
    for rivals in ([quick], [quick, slow, near], [replace(quick, interval_s=None), slow]):
        assert fastest_of(rivals) is None
    assert fastest_of([quick, replace(slow, interval_s=None)]) is None


FAILED = WorldReport(WorldSpec(2), (), Verdict("Rank 1 died.", "SIGKILL.", ""), 1.0, "fork", "")
QUICK = [row(56e-6, 8), row(70e-6, 1024)]
ALL = tuple(8 * 4**step for step in range(3))
UNFINISHED = one_series([judge(QUICK[0], setup())], sizes_bytes=ALL)
ANSWERED: tuple[tuple[BenchReport, str, bool | None, Answer | None], ...] = (
    (
        report([*QUICK, row(9e-3, MIB)]),
        "Slow (1 of 3 sizes): 117 MB/s at 1 MiB is 2% of the 7.00 GB/s of a TCP stream; a median",
        None,
        SLOW,
    ),
    (
        document(UNFINISHED),
        (
            "Normal: 0.14 MB/s at 8 B is <1% of the 7.00 GB/s of a TCP stream. Medians within "
            "±1.0%. 4 elements verified. 2 of 3 sizes weren't measured within the budget: raise "
            "--budget."
        ),
        None,
        NORMAL,
    ),
    (
        replace(document(UNFINISHED), spec=BenchSpec((UNFINISHED.spec,), fits_sizes=True)),
        (
            "Normal: 0.14 MB/s at 8 B is <1% of the 7.00 GB/s of a TCP stream. Medians within "
            "±1.0%. 4 elements verified. Sizes up to 8 B fit into 10.0 s; --budget and -e measure "
            "larger ones."
        ),
        True,
        NORMAL,
    ),
    (report([row(1e-4, 64, wrong=3)]), "all-reduce is wrong at 64 B: 3 of 32", False, None),
    (report(QUICK, world=FAILED), "Rank 1 died. 2 of 2 sizes were measured", False, None),
)


@pytest.mark.parametrize(("made", "says", "good", "value"), ANSWERED)
def test_the_answer_comes_first_and_is_in_the_document(made, says, good, value):
    text, ok = answer_text(made)
    assert (text[: len(says)], ok, made.answer) == (says, good, value)
    assert encode(made)["answer"] == value
    if made.world is None:
        assert decode(BenchReport, encode(made)).series == made.series


def everything() -> BenchReport:
    """Return a report with every kind of content."""
    rows = [judge(row(56e-6, 8), setup()), judge(row(210e-6, MIB, noise=0.6), setup())]
    first = one_series(rows)
    ring = one_series([row(90e-6, 8)], algorithm="ring", in_place=False)
    other = replace(one_series(rows[:1], backend="mpi", sizes_bytes=ALL), error="A world failed.")
    refused = replace(first, rows=(), spec=with_changes(first.spec, op="scatter", refused="No."))
    where = replace(setup(), backend="mpi", limit=None, taken_cores=None)
    return document(first, ring, other, refused, setups=(setup(), where), notes=("A note.",))


@pytest.mark.parametrize("name", ["bench_slow", "bench_all"])
def test_the_report(name):
    made = everything() if name == "bench_all" else report([*QUICK, row(9e-3, MIB)])
    golden(Path(__file__).parent / "golden" / f"{name}.txt", partial(bench_view, made))
