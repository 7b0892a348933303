"""Draw pictures for slides: their content, its size, and what they must not contain."""

from __future__ import annotations

import io
import shlex
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from traces import real, spec_of

from distdemo import ops
from distdemo.demo.explain import explain_op
from distdemo.demo.view_picture import picture
from distdemo.trace.records import TraceReport
from distdemo.trace.view import trace_slides
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.slide import HEIGHT, THEME, WIDTH, draw_slides
from distdemo.view.tables import Column, Grid

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</text><script>alert(1)</script>&\x1b[31m"\x9b2J\u202e'


def blocks(*given: Block) -> list[Any]:
    return [lambda _: given]


def texts(svg: bytes) -> list[str]:
    return [text.text or "" for text in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314 - ours


def font_size(svg: bytes) -> float:
    return float(ET.fromstring(svg).find(f"{SVG}g").attrib["font-size"])  # type: ignore[union-attr]  # noqa: S314 - ours


def slides_of(report: TraceReport, kind: str = "svg") -> dict[str, bytes]:
    views = trace_slides(report)
    drawn = draw_slides(kind, "distdemo trace", [partial(view, report) for view in views.values()])
    return dict(zip(views, drawn, strict=True))


def test_a_slide_contains_the_table_within_its_edges() -> None:
    grid = Grid([Column("Rank", right=True), Column("After")], [["0", "[1 2]"], ["1", "[3 4]"]])
    (svg,) = draw_slides("svg", "a title", blocks(Heading("all_reduce · sum"), grid, Summary("ok")))
    assert texts(svg) == ["all_reduce · sum", "Rank", "After", "0", "[1 2]", "1", "[3 4]", "✓ ok"]
    root = ET.fromstring(svg)  # noqa: S314 - ours
    assert root.attrib["viewBox"] == f"0 0 {WIDTH} {HEIGHT}"
    assert root.findtext(f"{SVG}title") == "a title"
    for text in root.iter(f"{SVG}text"):
        left, width = float(text.attrib["x"]), float(text.attrib["textLength"])
        assert left > 0
        assert left + width < WIDTH
        assert 0 < float(text.attrib["y"]) < HEIGHT
    areas = [area.attrib["points"].split() for area in root.iter(f"{SVG}polygon")]
    edges = {corners[0].partition(",")[0] for corners in areas if len(corners) == 4}
    assert len(edges) > 3  # the frame's lines


def test_a_slide_fetches_nothing_and_text_stays_text() -> None:
    (svg,) = draw_slides("svg", HOSTILE, blocks(Heading(HOSTILE)))
    for forbidden in ("url(", "href", "<script", "<style", "\x1b", "\x9b", "\u202e"):
        assert forbidden not in svg.decode()
    assert "alert(1)" in "".join(texts(svg))


def test_text_is_as_large_as_the_slide_allows_and_a_long_report_is_higher() -> None:
    short = draw_slides("svg", "", blocks(Heading("short")))[0]
    wide = draw_slides("svg", "", blocks(Paragraph("word " * 15)))[0]
    long = draw_slides("svg", "", blocks(*[Paragraph(f"line {at}") for at in range(100)]))[0]
    assert font_size(short) > font_size(wide) > 36
    assert font_size(long) == 20
    assert float(ET.fromstring(long).attrib["height"]) > 2 * HEIGHT  # noqa: S314 - ours
    assert texts(long)[-1] == "line 99"


def test_every_explanation_is_legible_on_one_slide() -> None:
    for op in ops.REGISTRY.values():
        explanation = explain_op(op, spec_of(op.name, 4, 4))
        (svg,) = draw_slides("svg", "", [partial(picture, explanation)])
        assert font_size(svg) >= 24, op.name
        assert float(ET.fromstring(svg).attrib["height"]) == HEIGHT, op.name  # noqa: S314 - ours
        assert "rank 3" in texts(svg)


def test_each_round_of_a_trace_is_a_slide_with_the_table_in_one_place() -> None:
    drawn = slides_of(real("all_reduce", "ring", 4, 4))
    assert list(drawn) == [f"-{number:02}" for number in range(7)]
    assert len({font_size(svg) for svg in drawn.values()}) == 1
    assert font_size(drawn["-03"]) > 36
    assert "Round 3 of 6 · reduce-scatter" in " ".join(texts(drawn["-03"]))
    assert {"60", "64", "68", "72"} <= set(" ".join(texts(drawn["-06"])).split())
    assert any(text.startswith("✓ Verified") for text in texts(drawn["-06"]))
    places = set()
    for svg in drawn.values():
        cells = ET.fromstring(svg).iter(f"{SVG}text")  # noqa: S314 - ours
        places.add(next(cell.attrib["y"] for cell in cells if cell.text == "chunk 0"))
    assert len(places) == 1


def test_a_png_shows_the_colours_of_the_ranks() -> None:
    image_of = pytest.importorskip("PIL.Image").open
    drawn = slides_of(real("all_reduce", "ring", 2, 2), "png")
    for png in drawn.values():
        image = image_of(io.BytesIO(png))
        assert image.size == (WIDTH, HEIGHT)
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 24)}
        assert {tuple(THEME.ansi_colors[number]) for number in (6, 3)} <= colours  # ranks 0 and 1
        assert image.getpixel((0, 0))[:3] == (255, 255, 255)


@pytest.mark.processes
@pytest.mark.parametrize("line", ["hello -n 2", "broadcast -n 2", "explain scatter", "ops"])
def test_every_command_writes_pictures(command: Any, tmp_path: Path, line: str) -> None:
    file = tmp_path / "slide.svg"
    code, out, err = command(*shlex.split(line), "--output", str(file))
    assert (code, err) == (0, f"Wrote {file}\n")
    words = " ".join(texts(file.read_bytes())).split()
    assert {word for word in out.split() if word.isalpha()} <= set(words)


@pytest.mark.processes
def test_a_trace_writes_one_file_per_round_and_names_them(command: Any, tmp_path: Path) -> None:
    code, _, err = command("trace", "-n", "2", "--output", str(tmp_path / "ring.svg"))
    names = ["ring-00.svg", "ring-01.svg", "ring-02.svg"]
    assert code == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == names
    assert err.splitlines() == [f"Wrote {tmp_path / name}" for name in names]


@pytest.mark.usefixtures("no_rank_starts")
def test_a_png_without_matplotlib_is_refused(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distdemo.cli.types.find_spec", lambda _: None)
    code, out, err = command("all-reduce", "--output", str(tmp_path / "slide.png"))
    assert (code, out) == (2, "")
    assert "matplotlib is not installed." in err
    assert "pip install 'distdemo[plot]'" in err
    assert list(tmp_path.iterdir()) == []
