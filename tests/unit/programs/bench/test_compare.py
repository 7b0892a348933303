"""Which differences between two recordings count as changes."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recordings import SIZES, document, hockney, one_row, one_series, setup, written

from distdemo.bench.compare import compare, means
from distdemo.bench.comparing import Comparison, Rule
from distdemo.bench.reading import read
from distdemo.bench.recorded import RecordedRow, RecordedSeries, Recording, SeriesKey
from distdemo.bench.shifts import Shift
from distdemo.bench.verdicts import DRIFT, SERIES_DRIFT, judged
from distdemo.errors import UsageError

KEY = SeriesKey("gloo", "all-reduce", "tensor", True, False, 2, "float32", "sum")


def noisy(
    rng: random.Random,
    gain: float = 1.0,
    *,
    series: int = 1,
    drift: float = 0.035,
    between: float = 0.10,
    bimodal: float = 0.0,
    launches: int | None = None,
) -> Recording:
    """A run: it drifts as a whole, and each launch has its luck at each size."""
    whole, found = rng.gauss(0, drift), []
    count = launches or rng.randint(6, 10)
    for number in range(series):
        rows = []
        for size in SIZES:
            steady = rng.randint(6, count)  # launches after which it is left out
            times = [
                _launch(rng, hockney(size) * gain, whole, between, bimodal) if at < steady else ()
                for at in range(count)
            ]
            rows.append(RecordedRow(size, tuple(times)))
        key = replace(KEY, in_place=bool(number))
        found.append(RecordedSeries(key, "all_reduce", "cpu", 2, 1, tuple(rows)))
    return Recording("run.json", tuple(found))


def _launch(rng, base, whole, between, bimodal):
    luck = whole + rng.gauss(0, between) + (math.log(1.6) if rng.random() < bimodal else 0.0)
    return tuple(base * math.exp(luck + rng.gauss(0, 0.15)) for _ in range(3))


def changed(found: Comparison) -> bool:
    """Whether it reports any change at all."""
    verdicts = [row.verdict for each in found.series for row in each.rows]
    verdicts += [each.overall.verdict for each in found.series]
    return bool({"slower", "faster"} & set(verdicts))


def rate(tries: int, seed: int, gain: float, **how: Any) -> float:
    rng = random.Random(seed)
    pairs = ((noisy(rng, **how), noisy(rng, gain, **how)) for _ in range(tries))
    return sum(changed(compare(*pair, Rule())) for pair in pairs) / tries


@pytest.mark.parametrize("bimodal", [0.0, 0.15])
def test_two_runs_of_the_same_are_seldom_called_different(bimodal):
    assert rate(200, 1, 1.0, bimodal=bimodal, series=2) <= 0.15


def test_without_drift_noise_is_hardly_ever_called_a_change():
    assert rate(200, 2, 1.0, drift=0.0, bimodal=0.15) <= 0.03


@pytest.mark.parametrize("bimodal", [0.0, 0.15])
def test_a_fifth_more_is_found_though_single_rows_are_noisy(bimodal):
    assert rate(100, 3, 1.2, bimodal=bimodal, drift=0.02) >= 0.93
    assert rate(100, 4, 1 / 1.2, bimodal=bimodal, drift=0.02) >= 0.93


def recording(tmp_path: Path, name: str, *series: dict[str, Any], **more: Any) -> Recording:
    written(tmp_path / name, document(*series, **more))
    return read(tmp_path / name)


def scaled(factor: float, seed: int = 1, **how: Any) -> dict[str, Any]:
    rows = [one_row(size, factor * hockney(size), seed=seed, **how) for size in SIZES]
    return one_series(rows)


def test_a_clear_change_has_its_size_and_sign(tmp_path):
    old = recording(tmp_path, "old.json", scaled(1.0))
    for factor, verdict in ((1.5, "slower"), (1 / 1.5, "faster"), (1.0, "no change")):
        new = recording(tmp_path, "new.json", scaled(factor, seed=2))
        (series,) = compare(old, new, Rule(fail_over=0.10)).series
        assert {row.verdict for row in series.rows} == {verdict}
        assert series.overall.verdict == verdict
        assert series.overall.ratio == pytest.approx(factor, rel=0.03)
        low, high = series.overall.interval or (0, 0)
        assert low < factor < high
        assert {row.fails for row in series.rows} == {verdict == "slower"}


def test_the_threshold_of_a_change_and_that_of_a_failure_are_two(tmp_path):
    old = recording(tmp_path, "old.json", scaled(1.0))
    new = recording(tmp_path, "new.json", scaled(1.5, seed=2))
    assert not changed(compare(old, new, Rule(threshold=1.0)))
    assert compare(old, new, Rule()).ok
    assert compare(old, new, Rule(fail_over=1.0)).ok
    found = compare(old, new, Rule(threshold=1.0, fail_over=0.1))
    assert not found.ok
    assert found.failing == len(SIZES) + 1
    assert compare(new, old, Rule(fail_over=0.1)).ok, "faster is no failure"


def test_too_few_launches_tell_nothing(tmp_path):
    old = recording(tmp_path, "old.json", scaled(1.0, launches=1))
    new = recording(tmp_path, "new.json", scaled(9.0, launches=8))
    found = compare(old, new, Rule(fail_over=0.1))
    assert found.count("cannot be told") == found.rows == len(SIZES)
    assert found.series[0].overall.verdict == "cannot be told"
    assert (found.ok, found.confidence) == (True, None)
    assert any("more --launches" in note for note in found.notes)


def test_the_confidence_is_of_all_rows_together(tmp_path):
    few, many = (
        recording(tmp_path, f"{count}.json", scaled(1.0, launches=count)) for count in (6, 9)
    )
    assert compare(many, many, Rule()).confidence == pytest.approx(0.95)
    double = [scaled(1.0, launches=6), {**scaled(1.0, launches=6), "in_place": False}]
    both = recording(tmp_path, "both.json", *double)
    found = compare(both, both, Rule()).confidence
    assert found is not None
    assert 0.94 < found < 0.95, "6 launches allow no less than 2 in 924 for each of 24 rows"
    assert compare(few, few, Rule()).count("cannot be told") == 0


def many_series(tmp_path: Path, name: str, slow: tuple[int, int] | None = None) -> Recording:
    """30 series of 12 sizes with 6 launches each; one size of one of them takes ten times as long.

    Args:
        tmp_path: to write it to.
        name: of the file.
        slow: the series and the size's place; None: none is slow.
    """
    found = []
    for number in range(30):
        each = scaled(1.0, seed=number if slow is None else 100 + number, launches=6)
        if slow is not None and slow[0] == number:
            size = SIZES[slow[1]]
            each["rows"][slow[1]] = one_row(size, 10 * hockney(size), seed=7, launches=6)
        found.append({**each, "backend": f"backend{number}"})
    return recording(tmp_path, name, *found)


def test_of_many_rows_one_that_is_ten_times_slower_is_found(tmp_path):
    old = many_series(tmp_path, "old.json")
    found = compare(old, many_series(tmp_path, "new.json", (13, 4)), Rule(fail_over=0.1))
    assert found.count("cannot be told") == 0
    failing = [
        (each.key.backend, row.size) for each in found.series for row in each.rows if row.fails
    ]
    assert failing == [("backend13", SIZES[4])]
    assert not found.ok
    assert found.each == pytest.approx(1 - 2 / 924)
    assert found.confidence == pytest.approx(1 - 360 * 2 / 924)
    assert all(each.overall.interval is not None for each in found.series)


def test_the_confidence_of_very_many_rows_is_not_below_nothing(tmp_path):
    series = [scaled(1.0, launches=5) | {"backend": f"backend{at}"} for at in range(12)]
    run = recording(tmp_path, "run.json", *series)
    found = compare(run, run, Rule())
    assert found.each == pytest.approx(1 - 2 / 252)
    assert found.confidence == 0.0


def test_what_looks_like_a_failure_but_cannot_be_told_is_suspect(tmp_path):
    old = recording(tmp_path, "old.json", scaled(1.0, launches=3))
    new = recording(tmp_path, "new.json", scaled(9.0, launches=3, seed=2))
    found = compare(old, new, Rule(fail_over=0.1))
    assert (found.ok, found.suspects) == (True, len(SIZES) + 1)
    assert compare(old, new, Rule()).suspects == 0, "nothing was said to be too much"
    assert compare(new, old, Rule(fail_over=0.1)).suspects == 0, "faster is no failure"
    old, new = (many_series(tmp_path, "run.json", each) for each in (None, (0, 0)))
    sure = compare(old, new, Rule(fail_over=0.1))
    assert sure.suspects == 0


def test_a_ratio_beyond_the_threshold_that_may_be_noise_is_not_called_no_change(tmp_path):
    old = recording(tmp_path, "old.json", scaled(1.0, launches=6, noise=1.0))
    new = recording(tmp_path, "new.json", scaled(1.5, launches=6, noise=1.0, seed=2))
    for row in compare(old, new, Rule()).series[0].rows:
        if not 1 / 1.1 <= row.ratio <= 1.1:
            assert row.verdict != "no change"


@pytest.mark.parametrize(
    ("ratio", "interval", "verdict"),
    [
        (1.09, (0.01, 46.4), "cannot be told"),
        (1.0, (0.78, 1.29), "no change"),
        (1.0, (0.78, 1.31), "cannot be told"),
        (1.0, (0.76, 1.29), "cannot be told"),
        (1.09, (1.06, 1.6), "cannot be told"),
        (1.5, (1.06, 46.4), "slower"),
        (0.5, (0.01, 0.94), "faster"),
    ],
)
@pytest.mark.parametrize("drift", [DRIFT, SERIES_DRIFT])
def test_no_change_is_said_only_where_none_could_hide_in_the_interval(
    drift, ratio, interval, verdict
):
    found = judged(Shift(ratio, interval), Rule(fail_over=0.1), drift, (6, 6), None)
    assert (found["verdict"], found["fails"]) == (verdict, verdict == "slower")


def test_sizes_whose_change_could_go_unseen_are_counted(tmp_path):
    old, new = (
        recording(tmp_path, f"{seed}.json", scaled(1.0, seed=seed, launches=6, noise=0.5))
        for seed in (1, 2)
    )
    (note,) = compare(old, new, Rule()).notes
    assert "10% could go unseen in 1 of 1 series and 12 of 12 sizes" in note


@pytest.mark.parametrize(
    ("pairs", "rows"),
    [(((0, 1), (2, 3)), 0), (((0, 1), (0, 1)), 12), (((1, 0), (0, 1)), 0)],
)
def test_a_pair_of_ranks_is_compared_with_itself_alone(pairs, rows, tmp_path):
    one: dict[str, Any] = {
        "op": "p2p",
        "command": "p2p",
        "form": "blocking",
        "reduce_op": None,
        "pattern": "pair",
    }
    old, new = (
        recording(
            tmp_path,
            f"{place}.json",
            one_series(**one, world_size=4, group_size=4, src=src, dst=dst),
        )
        for place, (src, dst) in enumerate(pairs)
    )
    if rows:
        assert compare(old, new, Rule()).rows == rows
        return
    with pytest.raises(UsageError, match="no row in common") as caught:
        compare(old, new, Rule())
    for src, dst in pairs:
        assert f"from rank {src} to {dst}" in caught.value.why


def test_blocks_of_one_world_are_told_from_launches(tmp_path):
    worlds, blocks = (
        recording(tmp_path, f"{count}.json", setups={"gloo": setup() | {"launches": count}})
        for count in (9, 1)
    )
    assert (worlds.blocks, blocks.blocks) == ((), ("gloo",))
    told = " ".join(compare(worlds, blocks, Rule()).notes)
    assert "The new file's launches of gloo are blocks of one world" in told
    assert "old file's launches" not in told


def test_launches_that_left_out_sizes_compare_with_those_that_did_not():
    whole = [RecordedRow(size, ((1.0 * size,),) * 8) for size in (8, 64, 512)]
    partly = [
        RecordedRow(row.size, ((2.0 * row.size,),) * count)
        for row, count in zip(whole, (8, 6, 7), strict=True)
    ]
    old, new = means(list(zip(whole, partly, strict=True)))
    assert list(old.values()) == pytest.approx([1.0] * 8)
    assert list(new.values()) == pytest.approx([2.0] * 7), "the eighth has a third of the sizes"
    gaps = RecordedRow(8, ((), (16.0,)))
    assert means([(whole[0], gaps)])[1] == {1: pytest.approx(2.0)}


def test_what_one_file_alone_has_is_listed(tmp_path):
    old = recording(tmp_path, "old.json", scaled(1.0), one_series(command="broadcast"))
    rows = [one_row(size, hockney(size)) for size in (8, 32, 7)]
    new = recording(tmp_path, "new.json", one_series(rows))
    found = compare(old, new, Rule())
    assert found.rows == 2
    listed = {(each.where, each.key.command, each.whole): each.sizes for each in found.lonely}
    assert listed["old", "broadcast", True] == SIZES
    assert listed["old", "all-reduce", False] == SIZES[2:]
    assert listed["new", "all-reduce", False] == (7,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"group_size": 4}, "4 ranks"),
        ({"backend": "mpi"}, "mpi"),
        ({"dtype": "int64"}, "int64"),
        ({"async": True}, "async"),
        ({"rows": [one_row(12, 1e-3)]}, "12 to 12 bytes"),
    ],
)
def test_nothing_in_common_is_an_error_that_says_what_differs(change, words, tmp_path):
    old = recording(tmp_path, "old.json")
    new = recording(tmp_path, "new.json", one_series(**change))
    with pytest.raises(UsageError, match="no row in common") as caught:
        compare(old, new, Rule())
    assert words in caught.value.why


def test_another_machine_is_warned_of(tmp_path):
    old = recording(tmp_path, "old.json")
    there = {"host": "other", "processor": "Imaginary CPU", "cores": 2, "OMP_NUM_THREADS": "1"}
    new = recording(
        tmp_path,
        "new.json",
        one_series(world_size=4, groups=2),
        environment=there,
        versions={"distdemo": "1.2.4", "torch": "2.14.0"},
        setups={"gloo": setup(0.7) | {"start_method": "spawn"}},
    )
    found = compare(old, new, Rule())
    text = " ".join(found.warnings)
    for words in ("host: box", "torch: 2.13.0", "world size", "groups at once", "slower"):
        assert words in text
    light = {each.name: (each.old, each.new) for each in found.differences if not each.weighty}
    assert light["OMP_NUM_THREADS"] == ("not set", "1")
    assert light["distdemo"] == ("1.2.3", "1.2.4")
    assert light["start of gloo ranks"] == ("local fork", "local spawn")
    same = compare(old, old, Rule())
    assert (same.warnings, same.differences) == ((), ())
    almost = recording(tmp_path, "almost.json", setups={"gloo": setup(0.9)})
    assert compare(old, almost, Rule()).warnings == ()
