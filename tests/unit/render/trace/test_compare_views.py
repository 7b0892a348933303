"""Algorithms side by side: tables, sentences and documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from arenas import contest
from measurements import made_failure

from distdemo.bench.fitting import Link
from distdemo.launcher.records import WorldSpec
from distdemo.trace.contending import Arena, CompareReport, Contender, LinkSource, Timing
from distdemo.trace.view_amounts import short_bytes
from distdemo.trace.view_compare_document import compare_document
from distdemo.trace.view_compare_table import compare_view
from distdemo.trace.view_compare_words import ASSUMPTIONS
from distdemo.view.document import dumps
from distdemo.view.numbers import duration

Draw = Callable[..., str]


def view(report: CompareReport) -> Any:
    return lambda console: compare_view(report, console)


def flat(text: str) -> str:
    return " ".join(text.split())


def parsed(report: CompareReport) -> Any:
    return json.loads(dumps(compare_document(report)))


def changed(report: CompareReport, name: str, **more: Any) -> CompareReport:
    """With other fields for this algorithm at every size."""

    def row(each: Contender) -> Contender:
        return replace(each, **more) if each.about.name == name else each

    arenas = (replace(a, contenders=tuple(map(row, a.contenders))) for a in report.arenas)
    return replace(report, arenas=tuple(arenas))


def timed(report: CompareReport) -> list[tuple[Arena, Contender]]:
    return [(arena, each) for arena in report.arenas for each in arena.contenders if each.timing]


def test_costs_and_times_of_every_size_fit_80_columns(draw: Draw) -> None:
    text = draw(view(contest()))
    lines = [flat(line.replace("│", " ")) for line in text.splitlines()]
    assert "ring 6 1.5 KiB 3 KiB 6 KiB ✓ ✓" in lines
    assert "naive 3 48 MiB 96 MiB 192 MiB ✓ ✓" in lines
    assert "★ doubling 61.0 µs 3.5% 61.0 µs 122 µs 0.60× ✓" in lines
    assert "gloo's own 101 µs 15% — — — ✓" in lines
    assert "★ halving-doubling is the fastest at 16 MiB." in lines
    for words in (
        "Every count is what its formula gives, and what the runs handed to the backend.",
        "Fastest by the α–β model: doubling up to 30.5 KiB, halving-doubling above.",
        "α = 30.0 µs, β = 0.50 ns/B (2.00 GB/s): measured between ranks 0 and 1 of this world.",
        "all ranks alike of ring, naive, doubling, halving-doubling; rank 0 of aggregator",
        "Also in print for ring at 16 MiB, in all: 2nB = 128 MiB, 32 MiB more than was counted.",
        "In the order of the model, but for ring",
        "4 ranks on 2 cores",
    ):
        assert words in flat(text)


def test_there_is_one_table_where_there_is_room(draw: Draw) -> None:
    text = draw(view(contest(sizes=(1024,))), columns=150)
    assert text.count("╭") == 1
    row = next(line for line in text.splitlines() if "★ doubling" in line and "│" in line)
    assert flat(row.replace("│", "")) == (
        "★ doubling 2 2 KiB 4 KiB 8 KiB ✓ ✓ 61.0 µs 3.5% 61.0 µs 122 µs 0.60× ✓"
    )


@pytest.mark.parametrize(("columns", "encoding"), [(40, "utf-8"), (40, "ascii"), (80, "ascii")])
def test_a_narrow_or_plain_terminal_gets_every_number(
    draw: Draw, columns: int, encoding: str
) -> None:
    report = contest(sizes=(1024,))
    text = draw(view(report), encoding, columns)
    assert "?" not in text
    for _, each in timed(report):
        if each.timing is not None and each.counts is not None:
            wanted = duration(each.timing.median), short_bytes(each.counts.total)
            assert all(
                flat(w).replace("µ", text.isascii() * "u" or "µ") in flat(text) for w in wanted
            )


def test_the_document_has_the_numbers_of_the_table(draw: Draw) -> None:
    report = contest("all_gather", 6, (1024, 1 << 20))
    text, found = draw(view(report)), parsed(report)
    rows = [row for size in found["sizes"] for row in size["rows"]]
    assert len(rows) == len(timed(report)) == 8
    for row, (arena, each) in zip(rows, timed(report), strict=True):
        assert row["timing"]["median_seconds"] == each.timing.median  # type: ignore[union-attr]
        assert duration(row["timing"]["median_seconds"]) in text
        if each.counts is not None:
            assert row["counts"]["total_bytes"] == row["handed_bytes"] == each.counts.total
            assert short_bytes(row["counts"]["busiest_bytes"]) in text
            own = arena.contenders[0].timing
            assert row["times_own"] == each.timing.median / own.median  # type: ignore[union-attr]
    assert found["sizes"][0]["bytes"] == 6 * 1024
    assert found["link"]["alpha_seconds"] == 30e-6
    assert (found["ok"], found["errors"], found["mode"]) == (True, [], "compare")
    assert [each["name"] for each in found["algorithms"]][:2] == ["all_gather", "ring"]


def test_the_document_has_the_users_limit_and_every_link() -> None:
    lone, together = Link(20e-6, 0.4e-9), Link(60e-6, 0.0)
    link = LinkSource(Link(30e-6, 0.5e-9), "measured", together, lone)
    world = WorldSpec(4, deadline=604_800.0, stall=42.0, start_method="fork")
    found = parsed(contest(sizes=(1024,), link=link, world=world))
    assert (found["world"]["timeout"], found["world"]["start_method"]) == (42.0, "fork")
    assert found["link"]["lone"]["alpha_seconds"] == lone.alpha
    assert found["link"]["together"] == {
        "alpha_seconds": together.alpha,
        "beta_seconds_per_byte": together.beta,
        "bandwidth_bytes_per_second": None,
    }
    given = parsed(contest(sizes=(1024,)))["link"]
    assert (given["lone"], given["together"]) == (None, None)


def test_what_was_refused_says_why_and_wins_nothing(draw: Draw) -> None:
    report = contest(sizes=(1024,), refused="doubling")
    text = draw(view(report))
    assert "— doubling was not run: it would take longer than --timeout." in text
    assert "★ naive is the fastest at 1 KiB.\n" in text
    row = next(r for r in parsed(report)["sizes"][0]["rows"] if r["algorithm"] == "doubling")
    assert row["refused"]
    assert (row["timing"], row["handed_bytes"]) == (None, None)


def test_a_wrong_result_is_an_error_and_wins_nothing(draw: Draw) -> None:
    wrong = changed(contest(), "doubling", timing=Timing(1e-9, 1e-9, 1e-9, 9, 3, 4096))
    text, found = draw(view(wrong)), parsed(wrong)
    assert "✗ 3 of 4,096" in text
    assert "doubling gave 3 wrong elements of 4,096." in text
    assert "★ doubling" not in text
    assert text.rstrip().splitlines()[-1].startswith("✗ 6 wrong elements of ")
    assert found["ok"] is False
    assert [each["algorithm"] for each in found["errors"]] == ["doubling"] * 2


def test_one_whose_interval_overlaps_with_the_fastest_s_is_named(draw: Draw) -> None:
    near = Timing(62e-6, 60e-6, 66e-6, 9, 0, 4096)
    text = draw(view(changed(contest(sizes=(1024,)), "ring", timing=near)))
    assert "★ doubling is the fastest at 1 KiB, but not clearly apart from ring." in text


def test_bytes_that_differ_are_told(draw: Draw) -> None:
    text = draw(view(changed(contest(sizes=(1024,)), "ring", handed=6000)))
    assert "≠ ring at 1 KiB handed 6,000 B to the backend, and its schedule sends 6 KiB." in flat(
        text
    )
    assert "Every count" not in text


def test_unequal_chunks_are_marked(draw: Draw) -> None:
    text = flat(draw(view(contest(sizes=(1000,)))))
    assert "Every count is what its formula gives where chunks are equal (≈: they are not)" in text


# ------------------------------------------------------------------------------------ simulations


def test_a_simulation_says_that_nothing_was_run(draw: Draw) -> None:
    report = contest(n=1024, sizes=(1024, 1 << 40), simulated=True)
    text = draw(view(report))
    assert text.startswith("SIMULATION: nothing was run;")
    assert "1,024 ranks" in text
    rows = [flat(line.replace("│", " ")) for line in text.splitlines()]
    assert "ring 2,046 2 TiB 4 TiB 2 PiB 1098 s" in rows
    assert "aggregator 2,046 1,023 TiB 2 PiB 2 PiB 312 h" in rows
    assert "★ doubling is the fastest by the model at 1 KiB." in rows
    assert all(each in flat(text) for each in ASSUMPTIONS)
    assert "rank 0 of aggregator" in flat(text)
    assert rows[-1] == "Simulated: 2 sizes on 1,024 ranks. Nothing was run."
    found = parsed(report)
    assert (found["mode"], found["world"], found["sizes"][1]["fastest"]) == (
        "simulation",
        None,
        "halving-doubling",
    )
    assert found["sizes"][0]["rows"][0]["counts"]["sent_bytes"]["ranks"] == 1024
    assert found["assumptions"]


def test_sentences_have_bytes_as_the_table_has_them(draw: Draw) -> None:
    text = flat(draw(view(contest(n=100_000, sizes=(1 << 30,), simulated=True))))
    assert "ring at 1 GiB, in all: 2nB = 195 TiB, 2 GiB more than was counted." in text
    assert "000 GiB" not in text


def test_without_a_link_only_bytes_are_told(draw: Draw) -> None:
    report = contest(simulated=True, link=None, notes=("Give --alpha and --beta.",))
    text = flat(draw(view(report)))
    assert "Give --alpha and --beta." in text
    assert "fastest" not in text
    assert "model" not in text
    assert parsed(report)["sizes"][0]["fastest"] is None


def test_one_fastest_at_every_size_is_named_without_crossovers(draw: Draw) -> None:
    text = flat(draw(view(contest("broadcast", sizes=(1024,), simulated=True))))
    assert "Fastest by the α–β model at this size: tree." in text


# ------------------------------------------------------------------------------ what did not end


def test_a_world_that_failed_and_an_interrupted_run_show_what_is_there(draw: Draw) -> None:
    failed = contest(sizes=(1024,), failure=made_failure())
    assert "✗ Rank 1 was killed by SIGKILL. Measured by then: 7 rows." in draw(view(failed))
    assert parsed(failed)["errors"][0]["what"] == "Rank 1 was killed by SIGKILL."
    stopped = contest(sizes=(1024,), interrupted=True)
    assert "Interrupted; by then: 7 rows at 1 size verified" in draw(view(stopped))
    assert parsed(stopped)["ok"] is False
    early = draw(view(contest(sizes=(), interrupted=True)))
    assert "✗ Interrupted before any size was done." in early
    nothing = contest(sizes=(), failure=made_failure())
    assert "Measured by then: 0 rows." in draw(view(nothing))
