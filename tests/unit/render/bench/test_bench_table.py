"""A measurement as people read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from measurements import (
    SIZES,
    made_failure,
    made_overlap,
    made_report,
    made_row,
    made_series,
    made_skew,
)

from distdemo.bench.old_records import BenchReport, Sized
from distdemo.bench.view_names import title
from distdemo.bench.view_table import bench_table, verdict_line
from distdemo.bench.yardsticks import Judgement
from distdemo.ops.spec import OpSpec
from distdemo.view.console import ASCII_SIGNS, Signs

Draw = Callable[..., str]


def several() -> BenchReport:
    return made_report(
        made_series(both=True),
        made_series(both=True, in_place=True),
        made_series(backend="mpi"),
        made_series("all-gather", "mpi", refused="mpi has no such thing."),
    )


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("columns", [20, 40, 60, 80, 200])
@pytest.mark.parametrize("make", [made_report, several])
def test_it_fits_every_terminal_and_encoding(
    draw: Draw, make: Callable[[], BenchReport], columns: int, encoding: str
) -> None:
    report = replace(make(), notes=("it was – noisy",))
    text = draw(lambda console: bench_table(report, console), encoding, columns)
    assert "52.2" in text
    assert "latency-bound" in " ".join(text.split())
    asked = " ".join(text.split()).replace("Is this normal?", "")
    assert "?" not in asked, "a character that the encoding lacks"


def test_at_80_columns_what_matters_is_there_and_what_is_not_is_said(draw: Draw) -> None:
    text = draw(lambda console: bench_table(made_report(), console))
    assert text.startswith("all-reduce · gloo · 2 ranks · float32 · sum\n")
    row = next(line for line in text.splitlines() if "│ 128 KiB │" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert {"128 KiB", "105 µs", "±3.0%", "1.24", "31%", "0", "latency-bound"} <= set(cells)
    assert "--format json has min," in text
    wide = draw(lambda console: bench_table(made_report(), console), columns=200)
    assert "--format json" not in wide
    for name in ("min", "p10", "p90", "p99", "max", "algbw"):
        assert f" {name} " in wide


def test_a_narrow_terminal_gets_a_list(draw: Draw) -> None:
    text = draw(lambda console: bench_table(made_report(), console), columns=40)
    assert "32 KiB: 65.8 µs ±3.0% 0.50 GB/s\n  latency-bound, 12% of limit\n" in text
    assert "│" not in text


def test_an_odd_size_is_told_exactly(draw: Draw) -> None:
    report = made_report(made_series(rows=(made_row(65_532), made_row(1 << 16))))
    text = draw(lambda console: bench_table(report, console))
    assert "65,532 B" in text
    assert " 64 KiB " in text


def test_an_unsteady_median_is_marked_and_named(draw: Draw) -> None:
    rough = made_row(1 << 20, interval=(0.0003, 0.0006), steady=False)
    alone = made_row(1 << 22, interval=None, steady=False)
    report = made_report(made_series(rows=(made_row(8), rough, alone)))
    text = draw(lambda console: bench_table(report, console))
    assert "%! │" in text
    assert "Not steady within ±5% (!): 2 of 3 sizes: 1 MiB (±" in text
    assert "4 MiB (too few launches" in text


def test_series_stand_side_by_side_and_the_best_is_marked_by_a_sign(draw: Draw) -> None:
    text = draw(lambda console: bench_table(several(), console))
    beside = text[text.index("Side by side") : text.index("Time")]
    rows = [
        line.split("│") for line in beside.splitlines() if line.startswith("│") and " B " in line
    ]
    for row in rows:
        assert [("★" in cell) for cell in row[2:5]] == [False, False, True]
    assert "Not measured: mpi has no such thing." in text


@pytest.mark.parametrize(
    ("intervals", "stars"),
    [
        (((1e-4, 2e-4), (1.9e-4, 3e-4), (2.5e-4, 3e-4)), [True, True, False]),
        (((1e-4, 9e-3), (2e-4, 9e-2), (5e-5, 9e-4)), [True, True, True]),  # nobody can tell
        (((1e-4, 2e-4), (3e-4, 4e-4), (3e-4, 4e-4)), [True, False, False]),
        ((None, (1e-4, 2e-4), None), [True, False, False]),  # the medians alone
    ],
)
def test_whatever_may_be_the_fastest_is_marked(
    draw: Draw, intervals: tuple[tuple[float, float] | None, ...], stars: list[bool]
) -> None:
    rows = [
        made_row(8, median=(1 + place) * 1e-4, interval=each)
        for place, each in enumerate(intervals)
    ]
    backends = ("gloo", "mpi", "ucc")
    series = [made_series(backend=b, rows=(row,)) for b, row in zip(backends, rows, strict=True)]
    text = draw(lambda console: bench_table(made_report(*series, setups={}), console))
    beside = text[text.index("Side by side") :]
    line = next(each for each in beside.splitlines() if " 8 B │" in each)
    assert [("★" in cell) for cell in line.split("│")[2:5]] == stars


def test_neighbouring_sizes_with_one_verdict_are_one_line(draw: Draw) -> None:
    text = draw(lambda console: bench_table(made_report(), console))
    normal = " ".join(text[text.index("Is this normal?") : text.index("Measured")].split())
    assert "• 8 B to 128 KiB: latency-bound: at 128 KiB a message of 8 B" in normal
    assert normal.count("latency-bound") == 1
    assert normal.count("Send fewer and larger messages.") == 1
    assert "512 KiB: below the limit" in normal
    assert "2 MiB to 32 MiB: close to the limit" in normal


def test_a_hint_is_given_once_and_alike_series_share_a_line(draw: Draw) -> None:
    report = made_report(made_series(both=True), made_series(both=True, in_place=True))
    text = " ".join(draw(lambda console: bench_table(report, console)).split())
    assert "out of place, in place: 8 B to 128 KiB: latency-bound" in text
    assert text.count("Send fewer") == 1


def test_limits_and_alignment_and_harness_are_told(draw: Draw) -> None:
    report = made_report(profile=True)
    text = " ".join(draw(lambda console: bench_table(report, console)).split())
    assert "memory copy: 8.00 GB/s one rank alone, 6.00 GB/s each with both ranks at" in text
    assert "TCP stream: 4.00 GB/s from rank 0 to 1, 8 B in 12.0 µs" in text
    assert "page of shared memory: 1.20 µs that is not timed" in text
    assert "│ gloo │ 0.15 µs │ 0.90 µs │ 1.20 µs │ 10,000 │" in text


def test_who_comes_late_is_named_by_a_sign(draw: Draw) -> None:
    late = made_report(made_series(skew=made_skew()))
    text = " ".join(draw(lambda console: bench_table(late, console)).split())
    assert "│ ▶ 2 │ 400 µs │ 900 µs │ 91% │ 60.0 µs │ 0 µs │" in text
    assert "rank 2 comes 400 µs late and is the last in 91% of the iterations" in text
    fair = made_report(made_series(skew=made_skew(late=None)))
    assert "No rank comes late" in draw(lambda console: bench_table(fair, console))


def test_overlap_is_told(draw: Draw) -> None:
    rows = tuple(made_row(size, overlap=made_overlap(size)) for size in SIZES)
    report = made_report(made_series(rows=rows, async_op=True))
    text = draw(lambda console: bench_table(report, console))
    assert "Hidden" in text
    assert "at best 60% of the communication is hidden" in text


def test_a_plot_needs_room_and_two_sizes(draw: Draw) -> None:
    text = draw(lambda console: bench_table(made_report(), console), columns=60)
    assert "● all-reduce gloo  ╌╌ TCP stream 4.00 GB/s" in text
    assert "└┬" in text
    for columns, rows in ((59, None), (80, (made_row(8),))):
        report = made_report(made_series(rows=rows))
        assert "└┬" not in draw(lambda c, r=report: bench_table(r, c), columns=columns)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_plot_has_a_sign_of_its_own_for_each_series_or_is_left_out(
    draw: Draw, encoding: str
) -> None:
    ops = [f"op-{number}" for number in range(11)]
    flat = made_row(8, median=1e-3, judgement=None)
    rows = (flat, replace(flat, size=16))
    series = [made_series(op, rows=rows) for op in ops]
    few, many = made_report(*series[:10], setups={}), made_report(*series, setups={})
    drawn = draw(lambda console: bench_table(few, console), encoding, 100)
    several = "& several" if encoding == "ascii" else "◎ several"
    legend = drawn[drawn.rindex("op-0", 0, drawn.index(several)) - 2 :]
    assert len({legend[legend.index(f"{op}") - 2] for op in ops[:10]}) == 10
    assert several not in draw(lambda console: bench_table(many, console), encoding, 100)


# ------------------------------------------------------------------------------------ the verdict


def test_the_verdict_counts_and_compares() -> None:
    assert verdict_line(made_report(), Signs()).plain == (
        "✓ 12 sizes, 0 wrong elements of 22,369,620; busbw up to 2.47 GB/s at 32 MiB "
        "(62% of a TCP stream)."
    )


def test_the_verdict_names_the_best_of_several_series() -> None:
    text = verdict_line(several(), Signs()).plain
    assert "36 sizes in 3 series" in text
    assert "busbw up to 2.47 GB/s at 32 MiB, all-reduce gloo out of place (62% of a TCP" in text
    assert text.endswith(" stream) and 9.55 GB/s at 8 MiB, all-reduce mpi (239% of a TCP stream).")


def test_the_verdict_counts_what_is_not_steady() -> None:
    rough = [made_row(size, steady=False) for size in (32, 128)]
    text = verdict_line(made_report(made_series(rows=(made_row(8), *rough))), Signs()).plain
    assert text.startswith("✓ 3 sizes, 0 wrong elements of 84; 2 of 3 not steady; busbw up to ")


def test_where_nothing_crosses_a_bus_no_bandwidth_is_told(draw: Draw) -> None:
    report = made_report(made_series(rows=(replace(made_row(8), factor=0.0, judgement=None),)))
    text = draw(lambda console: bench_table(report, console))
    assert text.endswith("✓ 1 size, 0 wrong elements of 4.\n")


def test_wrong_elements_are_a_failure() -> None:
    report = made_report(made_series(rows=(made_row(8, wrong=3),)))
    text = verdict_line(report, ASCII_SIGNS).plain
    assert text.startswith("WRONG 1 size, 3 wrong elements of 4;")


def test_what_was_measured_before_the_end_is_kept(draw: Draw) -> None:
    rows = tuple(map(made_row, SIZES[:2]))
    series = made_series(rows=rows, error="Rank 1 was killed by SIGKILL.")
    broken = made_report(series, failure=made_failure())
    text = verdict_line(broken, Signs()).plain
    assert text.startswith("✗ Rank 1 was killed by SIGKILL. Measured by then: 2 sizes, 0 wrong")
    shown = draw(lambda console: bench_table(broken, console))
    assert "52.4 µs" in shown
    stopped = made_report(made_series(rows=rows), interrupted=True)
    assert "Interrupted; this was measured by then: 2 sizes" in verdict_line(stopped, Signs()).plain


def test_that_it_was_interrupted_is_said_once() -> None:
    cut = "The measurement was interrupted before 12 of 12 sizes were measured."
    nothing = made_report(made_series(rows=(), error=cut), interrupted=True)
    text = verdict_line(nothing, Signs()).plain
    assert text == "✗ Interrupted before any size was timed."
    partly = made_report(made_series(rows=(made_row(8),), error=cut), interrupted=True)
    assert verdict_line(partly, Signs()).plain.startswith("✗ Interrupted; this was measured by")


def test_nothing_measured_says_why(draw: Draw) -> None:
    report = made_report(made_series(refused="mpi is not here."))
    line = verdict_line(report, Signs()).plain
    assert line == "✗ Nothing was measured: mpi is not here."
    assert line in draw(lambda console: bench_table(report, console))


def test_a_row_without_a_verdict_or_a_limit_is_drawn(draw: Draw) -> None:
    rows = (made_row(8, judgement=None), made_row(32, judgement=Judgement("", "", "", None)))
    report = made_report(made_series(rows=rows), setups={})
    text = draw(lambda console: bench_table(report, console))
    assert "Is this normal?" not in text
    assert "Limits" not in text
    assert "limit │" not in text, "there is no share of one"


def test_the_clock_is_named_in_words(draw: Draw) -> None:
    for clock, words in (("perf_counter", "the host's clock"), ("CUDA events", "CUDA events")):
        report = made_report(replace(made_series(), clock=clock))
        text = " ".join(draw(lambda console, r=report: bench_table(r, console)).split())
        assert f"timed by {words}." in text


def test_of_what_moves_no_data_no_dtype_is_told_and_of_a_pair_no_placement(draw: Draw) -> None:
    barrier = OpSpec("barrier", 2, shape=())
    spec = made_series("barrier", points=(Sized(0, (barrier,)),)).spec
    assert title(spec, "|") == "barrier | gloo | 2 ranks"
    row = made_row(0, judgement=Judgement("", "", ""))
    text = draw(
        lambda c: bench_table(made_report(replace(made_series(), spec=spec, rows=(row,))), c)
    )
    assert "Timed by host." in text
    assert "✓ 1 size, 0 wrong elements" in text
    for name in ("busbw up to", "Average busbw", "algbw", "Verdict", "limit │"):
        assert name not in text
    pair = OpSpec("p2p", 2, shape=(2,), pattern="pair", src=0, dst=1)
    one = made_series("p2p", points=(Sized(8, (pair,)),), in_place=True).spec
    assert title(one, "|") == "p2p | gloo | 2 ranks | float32 | 0 to 1"
    assert title(made_series(in_place=True).spec, "|").endswith("| in place")
