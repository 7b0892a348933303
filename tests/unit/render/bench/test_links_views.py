"""Every pair of ranks as people and machines read it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from measurements import made_failure, made_links
from rich.console import Console

from distdemo.bench.linking import LinksReport
from distdemo.bench.view_links_document import links_document
from distdemo.bench.view_links_table import links_table, links_verdict_line
from distdemo.view.console import Signs
from distdemo.view.document import dumps

Draw = Callable[..., str]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("columns", [30, 60, 80, 200])
@pytest.mark.parametrize("ranks", [2, 16, 17, 100])
def test_it_fits_every_terminal_and_encoding(
    draw: Draw, ranks: int, columns: int, encoding: str
) -> None:
    report = made_links(ranks, (0, 1))
    text = draw(lambda console: links_table(report, console), encoding, columns)
    assert "100" in text
    assert "0 to 1: 100" in text or ranks == 2  # two links have nothing but each other
    assert "?" not in text or encoding == "utf-8"
    assert ("Latency" in text) == (columns >= 60)


def test_a_slow_pair_is_marked_in_both_maps_and_named(draw: Draw) -> None:
    text = draw(lambda console: links_table(made_links(4, (1, 3)), console))
    assert text.count("100!") == 2
    assert text.count("0.90!") == 2
    assert "▶ 3 to 1: 100 µs, 900 MB/s (latency 100 µs, 3." in text
    assert text.rstrip().endswith("12 links, median 26.0 µs and 3.40 GB/s; 2 slow.")


def test_the_map_has_from_down_and_to_across(draw: Draw) -> None:
    report = made_links(3)
    text = draw(lambda console: links_table(report, console))
    link = next(link for link in report.links if (link.src, link.dst) == (2, 0))
    row = next(line for line in text.splitlines() if line.startswith(" 2 "))
    assert row.split()[1] == f"{link.latency * 1e6:.1f}"
    assert row.split()[3] == "—"


def test_many_ranks_are_summed_up_in_blocks_and_their_worst_named(draw: Draw) -> None:
    text = draw(lambda console: links_table(made_links(40, (3, 30)), console))
    assert "30-32" in text
    assert "Each figure is the worst of 3 by 3 ranks." in text
    assert "▶ 3 to 30" in text
    fair = draw(lambda console: links_table(made_links(40), console))
    assert "The slowest links, none of them slow" in fair


def test_colour_says_what_the_number_says(draw: Draw) -> None:
    stream = io.StringIO()
    terminal = Console(
        file=stream, force_terminal=True, color_system="truecolor", width=80, legacy_windows=False
    )
    terminal.print(links_table(made_links(3, (0, 1)), terminal))
    text = stream.getvalue()
    assert "48;2;128;0;38m   100!" in text.replace("38;5;15;", "").replace("37;", "")
    assert "48;2;255;255;204m" in text


def test_links_that_were_not_measured_are_no_figures(draw: Draw) -> None:
    report = made_links(4, failure=made_failure(4), interrupted=True)
    part = replace(report, links=report.links[:2])
    text = draw(lambda console: links_table(part, console))
    assert "2 of 12 links measured" in text
    assert "killed by SIGKILL" in text
    none = replace(report, links=(), latency=0.0, bandwidth=0.0)
    shown = " ".join(draw(lambda console: links_table(none, console)).split())
    assert "0 of 12 links measured; none is slow" in shown


@pytest.mark.parametrize("columns", [40, 100])
def test_a_rank_that_is_slow_itself_is_named_first_and_once(draw: Draw, columns: int) -> None:
    report = made_links(4, lame=2)
    assert report.suspects == (2,)
    text = " ".join(draw(lambda console: links_table(report, console), columns=columns).split())
    assert text.count("Rank 2 is slow with all others") == 1
    assert "none of them slow" not in text
    line = links_verdict_line(report, Signs())
    assert line.plain.startswith("▶ Rank 2 is slow with all others")
    assert line.plain.endswith(
        "12 links, median 26.0 µs and 3.40 GB/s; none of the other links is slow."
    )
    assert line.style != links_verdict_line(made_links(4), Signs()).style
    assert links_document(report)["verdict"] in line.plain
    assert links_document(report)["ok"]


def test_beside_a_slow_rank_slow_links_are_counted() -> None:
    report = made_links(6, (0, 1), lame=4)
    assert report.suspects == (4,)
    assert links_verdict_line(report, Signs()).plain.endswith("; 2 of the other links slow.")
    two = replace(report, suspects=(3, 4))
    assert "▶ Ranks 3 and 4 are slow with all others" in links_verdict_line(two, Signs()).plain


def test_where_all_is_well_the_verdict_is_green() -> None:
    line = links_verdict_line(made_links(4), Signs())
    assert line.plain == "✓ 12 links, median 26.0 µs and 3.40 GB/s; none is slow."
    assert line.style == "green"
    assert links_verdict_line(made_links(4, (0, 1)), Signs()).plain.startswith("▶ 12 links")


def test_the_document_holds_every_link() -> None:
    report = made_links(4, lame=3)
    found = json.loads(dumps(links_document(report)))
    assert found["command"] == "bench links"
    assert found["ok"] is True
    assert found["errors"] == []
    assert [(each["from"], each["to"]) for each in found["links"]] == [
        (link.src, link.dst) for link in report.links
    ]
    for each, link in zip(found["links"], report.links, strict=True):
        assert each["latency_seconds"] == link.latency
        assert each["bandwidth_bytes_per_second"] == link.bandwidth
        assert each["slow"] == link.slow
    assert found["median_latency_seconds"] == report.latency
    assert found["suspects"] == [3]


def wrong() -> LinksReport:
    report = made_links(3)
    return replace(report, links=(replace(report.links[0], wrong=5), *report.links[1:]))


@pytest.mark.parametrize(
    ("report", "what"),
    [
        (wrong(), "wrong elements came"),
        (made_links(3, failure=made_failure(3)), "killed by SIGKILL"),
        (made_links(3, interrupted=True), "was interrupted"),
        (replace(made_links(3), links=made_links(3).links[:1]), "Not every link"),
    ],
)
def test_what_is_not_ok_has_an_error(draw: Draw, report: LinksReport, what: str) -> None:
    found = links_document(report)
    assert found["ok"] is False
    assert any(what in error["what"] for error in found["errors"])
    assert "✗" in draw(lambda console: links_table(report, console))
