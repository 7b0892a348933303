"""What the machine itself did between two recordings, and which changes that may explain."""

from __future__ import annotations

from pathlib import Path

import pytest
from recordings import SIZES, document, gauged, hockney, one_row, one_series, written

from distdemo.bench.compare import compare
from distdemo.bench.comparing import Comparison, Rule
from distdemo.bench.reading import read
from distdemo.bench.recorded import Recording

STEADY = [0.200e-6, 0.203e-6, 0.198e-6, 0.201e-6, 0.202e-6, 0.199e-6, 0.197e-6, 0.204e-6]
FAR = [3 * each for each in STEADY]


def compared(
    folder: Path, factor: float, before: object, after: object, rule: Rule | None = None
) -> Comparison:
    """Two runs, of which the second takes so many times as long."""
    found = []
    for seed, scale, setups in ((1, 1.0, before), (2, factor, after)):
        rows = [one_row(size, scale * hockney(size), seed=seed) for size in SIZES]
        written(folder / f"{seed}.json", document(one_series(rows), setups=setups))
        found.append(read(folder / f"{seed}.json"))
    return compare(found[0], found[1], rule or Rule(fail_over=0.1))


def told(found: Comparison) -> set[str]:
    (series,) = found.series
    return {series.overall.verdict, *(row.verdict for row in series.rows)}


@pytest.mark.parametrize(
    ("factor", "before", "after", "word"),
    [(1.5, STEADY, FAR, "slower"), (1 / 1.5, FAR, STEADY, "faster")],
)
def test_what_the_machine_may_explain_cannot_be_told_and_never_fails(
    factor, before, after, word, tmp_path
):
    found = compared(tmp_path, factor, gauged(before), gauged(after))
    assert told(found) == {"cannot be told"}
    assert (found.ok, found.failing) == (True, 0)
    assert found.suspects == (len(SIZES) + 1 if word == "slower" else 0)
    (series,) = found.series
    assert {each.explained_by.kind for each in series.rows if each.explained_by} == {"core to core"}
    (said,) = found.warnings
    figures = ("0.203 µs, now 0.608 µs", "0.608 µs, now 0.203 µs")[word == "faster"]
    assert said == (
        f"gloo, core to core: {figures}: the machine itself was 3 times {word}, which may be why "
        f"1 series and {len(SIZES)} sizes changed."
    )


@pytest.mark.parametrize(
    ("factor", "after", "verdict"),
    [
        (1.5, STEADY, "slower"),  # the machine is the same
        (1.2, STEADY, "slower"),
        (1 / 1.5, FAR, "faster"),  # it changed, but not that way
        (9.0, FAR, "slower"),  # not by so much
    ],
)
def test_what_the_machine_does_not_explain_is_a_change(factor, after, verdict, tmp_path):
    found = compared(tmp_path, factor, gauged(STEADY), gauged(after))
    assert found.series[0].overall.verdict == verdict
    assert verdict in {row.verdict for row in found.series[0].rows}
    assert found.ok == (verdict == "faster")
    assert all(row.explained_by is None for row in found.series[0].rows if row.verdict == verdict)


def test_a_machine_that_changed_beside_times_that_did_not_is_told(tmp_path):
    found = compared(tmp_path, 1.0, gauged(STEADY), gauged(FAR))
    assert told(found) == {"no change"}
    assert found.warnings == (
        "gloo, core to core: 0.203 µs, now 0.608 µs: the machine itself was 3 times slower.",
    )
    assert [each.moved for each in found.gauges] == [True, False, False]


def test_a_copy_says_nothing_of_small_messages(tmp_path):
    found = compared(tmp_path, 1.5, gauged(STEADY), gauged(STEADY, copy=40e-6))
    verdicts = {row.size: row.verdict for row in found.series[0].rows}
    assert {verdicts[size] for size in SIZES if size < 32 << 10} == {"slower"}
    assert {verdicts[size] for size in SIZES if size >= 32 << 10} == {"cannot be told"}
    assert "gloo, copy: 20.1 µs, now 40.1 µs: the machine itself was 2 times" in found.warnings[0]


FLIPPING = [3 * each if launch % 2 else each for launch, each in enumerate(STEADY)]


def of_states(folder: Path, name: str, apart: list[float], factor: float = 1.0) -> Recording:
    """A run whose launches take twice as long where the cores are far apart."""
    rows = [one_row(size, factor * hockney(size), seed=sum(map(ord, name))) for size in SIZES]
    for row in rows:
        for launch, times in enumerate(row["times_seconds"]):
            row["times_seconds"][launch] = [
                2 * time if apart[launch] > 0.4e-6 else time for time in times
            ]
    written(folder / name, document(one_series(rows), setups=gauged(apart)))
    return read(folder / name)


def test_launches_are_held_against_those_of_the_same_state(tmp_path):
    old, new = (
        of_states(tmp_path, "old", FLIPPING),
        of_states(tmp_path, "new", STEADY[:6] + FAR[:2]),
    )
    found = compare(old, new, Rule())
    overall = found.series[0].overall
    assert (overall.verdict, overall.launches) == ("no change", (8, 8))
    assert overall.ratio == pytest.approx(1.0, abs=0.04)
    low, high = overall.interval or (0, 9)
    assert high / low < 1.15, "all pairs would reach from a half to 2"
    assert any("gloo: the machine was in 2 states: 0.2, 0.61 µs" in note for note in found.notes)


def test_a_change_of_the_code_shows_on_a_machine_that_flips(tmp_path):
    old, new = of_states(tmp_path, "old", FLIPPING), of_states(tmp_path, "new", FLIPPING[::-1], 1.2)
    found = compare(old, new, Rule(fail_over=0.1))
    assert found.series[0].overall.verdict == "slower"
    assert found.series[0].overall.explained_by is None
    assert not found.ok
    back = compare(new, old, Rule())
    assert back.series[0].overall.verdict == "faster"


def test_launches_of_a_state_that_the_other_run_never_had_are_left_out(tmp_path):
    old, new = of_states(tmp_path, "old", FLIPPING), of_states(tmp_path, "new", STEADY)
    assert compare(old, new, Rule()).series[0].overall.launches == (4, 8)
    few = of_states(tmp_path, "few", [*FAR[:7], STEADY[7]])
    overall = compare(old, few, Rule()).series[0].overall
    assert overall.launches == (8, 8)
    rare = compare(new, few, Rule()).series[0].overall
    assert (rare.launches, rare.verdict) == ((8, 8), "cannot be told")
    assert rare.explained_by is not None, "one launch of 8 is not enough"


def test_half_of_the_threshold_is_what_a_verdict_can_bear(tmp_path):
    nearly = gauged([1.04 * each for each in STEADY])
    beyond = gauged([1.07 * each for each in STEADY])
    assert told(compared(tmp_path, 1.14, gauged(STEADY), nearly)) >= {"slower"}
    found = compared(tmp_path, 1.14, gauged(STEADY), beyond)
    assert found.series[0].overall.verdict == "cannot be told"
    rule = Rule(threshold=0.20)
    assert not any(g.moved for g in compared(tmp_path, 1.14, gauged(STEADY), beyond, rule).gauges)


def test_a_size_is_held_against_the_launches_that_it_was_measured_in(tmp_path):
    """The machine changed after six launches; by then this size was steady."""
    late = STEADY[:6] + [3 * each for each in STEADY] * 2
    rows = [
        [one_row(8, factor * 30e-6, seed=seed, launches=6)] for seed, factor in ((1, 1.0), (2, 1.5))
    ]
    for name, setups, each in (("old", gauged(STEADY), rows[0]), ("new", gauged(late), rows[1])):
        written(tmp_path / f"{name}.json", document(one_series(each), setups=setups))
    found = compare(read(tmp_path / "old.json"), read(tmp_path / "new.json"), Rule())
    assert found.gauges[0].moved
    assert found.series[0].rows[0].verdict == "slower"


def test_a_failure_may_be_the_machines_where_a_change_is_not(tmp_path):
    found = compared(tmp_path, 4.0, gauged(STEADY), gauged(FAR), Rule(fail_over=1.0))
    assert found.series[0].overall.verdict == "slower"
    assert found.ok
    assert found.series[0].overall.suspect
    assert found.series[0].overall.explained_by is not None


def test_files_without_gauges_compare_as_ever(tmp_path):
    none = gauged(STEADY)["gloo"] | {"gauges": []}
    both = compared(tmp_path, 1.5, {"gloo": none}, {"gloo": none})
    assert (both.gauges, both.warnings) == ((), ())
    found = compared(tmp_path, 1.5, {"gloo": none}, gauged(FAR))
    assert told(found) == told(both) == {"slower"}
    said = "1.json does not say what the machine itself did"
    assert [any(said in note for note in each.notes) for each in (both, found)] == [False, True]
    other = {"gloo": gauged(FAR)["gloo"] | {"world_size": 4}}
    assert told(compared(tmp_path, 1.5, gauged(STEADY), other)) == {"slower"}, "of other worlds"
