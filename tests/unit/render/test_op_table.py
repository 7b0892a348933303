from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from distdemo import ops
from distdemo.demo.holdings import EVENTS, Event, Holding, Mismatch, Piece, RankRecord, Verification
from distdemo.demo.reports import OpReport
from distdemo.demo.view_op_table import op_table, verdict_line
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.ops.spec import OpSpec
from distdemo.view.console import Signs

Make = Callable[..., Any]

SPECS = {
    "broadcast": OpSpec("broadcast", 4, root=1),
    "reduce": OpSpec("reduce", 4, reduce_op="product", root=1),
    "all_reduce": OpSpec("all_reduce", 4, reduce_op="sum"),
    "scatter": OpSpec("scatter", 4, root=0),
    "gather": OpSpec("gather", 4, root=3),
    "all_gather": OpSpec("all_gather", 4),
    "reduce_scatter": OpSpec("reduce_scatter", 4, reduce_op="sum"),
    "all_to_all": OpSpec("all_to_all", 4),
    "barrier": OpSpec("barrier", 4, shape=()),
    "p2p": OpSpec("p2p", 4, src=0, dst=1, pattern="pair"),
}
RING = OpSpec("p2p", 4, pattern="ring", async_op=True)


def lines_of(text: str, rank: int) -> list[str]:
    """The table's line of this rank."""
    return [line for line in text.splitlines() if re.match(rf"[│|]\s+{rank} [│|]", line)]


def wrong(*misses: Mismatch, checked: int = 2) -> Verification:
    return Verification(ok=False, checked=checked, wrong=len(misses), mismatches=misses)


# ----------------------------------------------------------------------------- readable at 80


def test_every_op_has_an_example_here() -> None:
    assert set(SPECS) == set(ops.REGISTRY)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("spec", [*SPECS.values(), RING], ids=lambda spec: spec.op)
def test_every_op_is_drawn_in_80_columns_and_in_any_encoding(
    spec: OpSpec, encoding: str, imagined: Make, draw: Make
) -> None:
    text = draw(lambda console: op_table(imagined(spec), console), encoding)
    assert spec.op in text.splitlines()[0]
    assert "4 ranks" in text
    assert ("float32[4]" in text) == (spec.op != "barrier")
    for rank in range(4):
        assert lines_of(text, rank)


def test_who_holds_nothing_or_scratch_is_told_in_words(imagined: Make, draw: Make) -> None:
    scattered = draw(lambda console: op_table(imagined(SPECS["scatter"]), console))
    assert "nothing" in lines_of(scattered, 2)[0]
    reduced = draw(lambda console: op_table(imagined(SPECS["reduce"]), console))
    assert "undefined" in lines_of(reduced, 0)[0]
    assert "all" in lines_of(reduced, 1)[0]
    sent = draw(lambda console: op_table(imagined(SPECS["p2p"]), console))
    assert "takes no part" in lines_of(sent, 3)[0]


def test_the_numbers_and_where_they_came_from_stand_in_the_rank_s_line(
    imagined: Make, draw: Make
) -> None:
    text = draw(lambda console: op_table(imagined(SPECS["broadcast"]), console))
    line = lines_of(text, 2)[0]
    assert "[20 21 22 23]" in line
    assert "[10 11 12 13]" in line
    assert "rank 1" in line
    assert "✓ exact" in line


def test_without_unicode_the_signs_are_words(imagined: Make, draw: Make) -> None:
    text = draw(lambda console: op_table(imagined(SPECS["all_reduce"]), console), "ascii")
    assert "ok exact" in text
    assert "ok Verified: 16 elements match plain arithmetic exactly." in text


def test_wide_numbers_are_cut_to_the_ends_of_the_tensor_and_never_within_one(
    report: Make, record: Make, draw: Make
) -> None:
    big = Holding((Piece((4,), tuple(-1.23456e-30 * 10**n for n in range(4))),))
    spec = OpSpec("all_reduce", 1, reduce_op="sum")
    text = draw(lambda console: op_table(report(spec, [record(0, before=big, after=big)]), console))
    for exponent in (30, 27):
        assert text.count(f"-1.23456e-{exponent}") == 2


def test_what_moved_is_told_with_its_formula(imagined: Make, draw: Make) -> None:
    text = draw(lambda console: op_table(imagined(SPECS["all_reduce"]), console))
    assert "Moves: 2(n−1)/n × 16 B = 24 B (one rank's tensor)." in text
    sent = draw(lambda console: op_table(imagined(SPECS["p2p"]), console))
    assert "Moves: 16 B, one tensor." in sent
    assert "Slowest: rank 0, 850 µs" in text


def test_with_one_rank_the_verdict_says_that_nothing_was_proved(imagined: Make, draw: Make) -> None:
    text = draw(lambda console: op_table(imagined(OpSpec("all_gather", 1)), console))
    assert "With one rank every collective is the identity" in " ".join(text.split())


def test_a_tolerance_is_told(report: Make, record: Make, draw: Make) -> None:
    spec = OpSpec("all_reduce", 1, reduce_op="avg")
    close = Verification(ok=True, checked=2, tolerance=0.00125)
    text = draw(lambda c: op_table(report(spec, [record(0, verification=close)]), c))
    assert "within 0.0013, the rounding of the dtype" in " ".join(text.split())
    assert "close" in lines_of(text, 0)[0]


# -------------------------------------------------------------------------------- many ranks


def many(record: Make, report: Make, bad: set[int]) -> OpReport:
    spec = OpSpec("all_reduce", 256, reduce_op="sum", shape=(2,))
    miss = wrong(Mismatch(0, (1,), 7.0, 4.0))
    records = [record(r, **({"verification": miss} if r in bad else {})) for r in range(256)]
    made: OpReport = report(spec, records)
    return made


def test_many_ranks_are_summed_up_and_a_wrong_one_is_shown(
    record: Make, report: Make, draw: Make
) -> None:
    text = draw(lambda console: op_table(many(record, report, {100}), console))
    assert len(text.splitlines()) < 40
    for rank in (0, 3, 100, 252, 255):
        assert lines_of(text, rank), rank
    assert not lines_of(text, 4)
    assert "✗ 1 wrong" in lines_of(text, 100)[0]
    assert re.search(r"96 ranks more +│ all right", text)
    assert re.search(r"151 ranks more +│ all right", text)


def test_the_ranks_that_were_asked_for_are_shown_and_no_others(
    record: Make, report: Make, draw: Make
) -> None:
    made = many(record, report, set())
    text = draw(lambda console: op_table(made, console, frozenset({7, 200})))
    assert lines_of(text, 7)
    assert lines_of(text, 200)
    assert not lines_of(text, 0)


def test_sixteen_ranks_are_all_shown(record: Make, report: Make, draw: Make) -> None:
    spec = OpSpec("all_reduce", 16, reduce_op="sum")
    text = draw(lambda c: op_table(report(spec, [record(r) for r in range(16)]), c))
    assert all(lines_of(text, rank) for rank in range(16))


# ------------------------------------------------------------------------------------- wrong


def test_a_wrong_element_is_told_by_rank_index_got_and_expected(
    report: Make, record: Make, draw: Make
) -> None:
    spec = OpSpec("all_reduce", 2, reduce_op="sum", shape=(2,))
    bad = record(1, verification=wrong(Mismatch(0, (1,), 5.0, 4.0)))
    text = draw(lambda console: op_table(report(spec, [record(0), bad]), console))
    assert "rank 1, index 1: got 5, expected 4" in text
    assert "✗ Wrong: 1 of 4 elements, on rank 1." in text
    assert "Verified:" not in text


def test_a_wrong_element_of_a_list_is_told_with_its_piece(
    report: Make, record: Make, draw: Make
) -> None:
    spec = OpSpec("all_gather", 2, shape=(1, 2))
    two = Holding((Piece((1, 2), (0, 1)), Piece((1, 2), (2, 3))), listed=True)
    bad = record(0, after=two, verification=wrong(Mismatch(1, (0, 1), 9, 3)))
    text = draw(lambda console: op_table(report(spec, [bad, record(1)]), console))
    assert "rank 0, piece 1, index 0, 1: got 9, expected 3" in text


def test_a_wrong_element_that_is_nearly_right_is_shown_with_the_digits_that_differ(
    report: Make, record: Make, draw: Make
) -> None:
    spec = OpSpec("broadcast", 1, "float64", root=0)
    bad = record(0, verification=wrong(Mismatch(0, (0,), 0.3333333333, 0.3333333334)))
    text = draw(lambda console: op_table(report(spec, [bad]), console))
    got, expected = re.findall(r"got (\S+), expected (\S+)", text)[0]
    assert got != expected


def test_many_wrong_ranks_are_counted_and_the_first_are_named(
    record: Make, report: Make, draw: Make
) -> None:
    made = many(record, report, set(range(20)))
    text = draw(lambda console: op_table(made, console))
    assert "Wrong: 20 of 512 elements, on rank 0, 1, 2, 3, 4, 5, 6, 7…" in text
    assert text.count("got 7, expected 4") == 16


# ------------------------------------------------------------------------------------- events


def test_events_are_in_the_order_of_the_clock(report: Make, record: Make, draw: Make) -> None:
    spec = OpSpec("p2p", 2, src=0, dst=1, pattern="pair", async_op=True)
    holds = Holding((Piece((2,), (10.0, 11.0)),))
    early = Event(1, 0.0, "irecv returned", holds, True, "not to be read yet")
    later = Event(0, 0.0005, "isend returned", holds, True, "not to be changed yet")
    records = [record(0, events=(later,)), record(1, events=(early,))]
    text = draw(lambda console: op_table(report(spec, records), console))
    assert text.index("irecv returned") < text.index("isend returned")
    assert "not to be changed yet" in text
    assert "500 µs" in text
    assert "Launch" in text
    assert "Wait" in text


# ------------------------------------------------------------------------------- the one line


def test_the_verdict_stands_alone(imagined: Make) -> None:
    line = verdict_line(imagined(SPECS["all_reduce"]), Signs())
    assert line.plain == "✓ Verified: 16 elements match plain arithmetic exactly."


def test_a_title_names_backend_and_device(
    report: Make, record: Make, world: Callable[..., WorldReport], draw: Make
) -> None:
    spec = OpSpec("reduce", 1, "int8", (2, 3), "max", root=0)
    on_gpu = WorldReport(WorldSpec(1, "nccl", "cuda"), world(1).outcomes, None, 1, "spawn", "")
    made = report(spec, [record(0)], world=on_gpu)
    title = draw(lambda console: op_table(made, console)).splitlines()[0]
    assert title == "reduce · max · root 0 · 1 rank · nccl · cuda · int8[2, 3]"


def test_what_was_timed_on_a_gpu_names_its_clock_and_libraries(
    report: Make, record: Make, draw: Make
) -> None:
    spec = OpSpec("all_reduce", 2, reduce_op="sum")
    on_gpu = report(spec, [record(0, clock=EVENTS), record(1, clock=EVENTS)])
    versions = {"torch": "2.8.0", "nccl": "2.27.3", "cuda": "12.8"}
    text = draw(lambda console: op_table(replace(on_gpu, versions=versions), console))
    assert text.endswith("Timed by CUDA events; NCCL 2.27.3; CUDA 12.8.\n")
    on_cpu = report(spec, [record(0), record(1)])
    assert "Timed by" not in draw(lambda console: op_table(on_cpu, console))


def test_a_record_is_frozen(record: Callable[..., RankRecord]) -> None:
    with pytest.raises(AttributeError):
        record(0).rank = 1  # type: ignore[misc]


# ------------------------------------------------------------------------------- several hosts


def test_ranks_of_several_hosts_are_shown_with_theirs(imagined: Make, draw: Make) -> None:
    made = imagined(SPECS["all_reduce"])
    hosts = ("node-a", "node-a", "node-b", "node-b")
    afar = replace(made, world=replace(made.world, engine="torchrun", hosts=hosts))
    text = draw(lambda console: op_table(afar, console))
    assert "Host" in text
    for rank, host in enumerate(hosts):
        assert f" {host} " in lines_of(text, rank)[0]
    assert "Host" not in draw(lambda console: op_table(made, console))
