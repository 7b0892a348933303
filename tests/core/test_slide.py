"""Draw pictures for slides: their content, its size, and what they must not contain."""

from __future__ import annotations

import io
import shlex
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from traces import spec_of

from distdemo import ops
from distdemo.demo.explain import explain_op
from distdemo.demo.view_picture import picture
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.colours import RANKS, of_rank
from distdemo.view.slide import HEIGHT, MARGIN, READABLE, WIDTH, draw_picture, draw_slides
from distdemo.view.tables import Column, Grid

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</text><script>alert(1)</script>&\x1b[31m"\x9b2J\u202e'


def blocks(*given: Block) -> Any:
    return lambda _: given


def texts(svg: bytes) -> list[str]:
    return [text.text or "" for text in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314 - ours


def font_size(svg: bytes) -> float:
    return float(ET.fromstring(svg).find(f"{SVG}g").attrib["font-size"])  # type: ignore[union-attr]  # noqa: S314 - ours


def picture_size(svg: bytes) -> tuple[float, float]:
    root = ET.fromstring(svg)  # noqa: S314 - ours
    return float(root.attrib["width"]), float(root.attrib["height"])


def test_a_slide_contains_the_table_and_ends_where_it_ends() -> None:
    grid = Grid([Column("Rank", right=True), Column("After")], [["0", "[1 2]"], ["1", "[3 4]"]])
    svg = draw_picture("svg", "a title", blocks(Heading("all_reduce · sum"), grid, Summary("ok")))
    words = [text for text in texts(svg) if text.strip("─│├┤┬┴┼╭╮╰╯")]
    assert words == ["all_reduce · sum", "Rank", "After", "0", "[1 2]", "1", "[3 4]", "✓ ok"]
    root = ET.fromstring(svg)  # noqa: S314 - ours
    width, height = picture_size(svg)
    assert root.attrib["viewBox"] == f"0 0 {width:.0f} {height:.0f}"
    assert root.findtext(f"{SVG}title") == "a title"
    places = [
        [float(text.attrib[name]) for name in ("x", "y", "textLength")]
        for text in root.iter(f"{SVG}text")
    ]
    assert min(x for x, _, _ in places) == MARGIN
    assert max(x + length for x, _, length in places) == pytest.approx(width - MARGIN, abs=1)
    assert all(MARGIN < y < height - MARGIN for _, y, _ in places)
    assert width <= WIDTH
    assert height <= HEIGHT


def test_a_slide_fetches_nothing_and_text_stays_text() -> None:
    svg = draw_picture("svg", HOSTILE, blocks(Heading(HOSTILE)))
    for forbidden in ("url(", "href", "<script", "<style", "\x1b", "\x9b", "\u202e"):
        assert forbidden not in svg.decode()
    assert "alert(1)" in "".join(texts(svg))


def test_text_is_as_large_as_the_slide_allows_and_a_long_report_is_higher() -> None:
    short = draw_picture("svg", "", blocks(Heading("short")))
    wide = draw_picture("svg", "", blocks(Paragraph("word " * 15)))
    long = draw_picture("svg", "", blocks(*[Paragraph(f"line {at}") for at in range(100)]))
    assert font_size(short) > font_size(wide) > 36
    assert font_size(long) == 20
    width, height = picture_size(long)
    assert height > 2 * HEIGHT
    assert width < WIDTH / 4
    assert texts(long)[-1] == "line 99"


def test_a_long_report_is_cut_at_blank_lines_into_readable_slides() -> None:
    parts = [Paragraph("\n".join(f"part {part} line {at}" for at in range(14))) for part in "abc"]
    report = [block for part in parts for block in (part, Paragraph())]
    first, second = draw_slides("svg", "", blocks(*report))
    assert texts(first)[-1] == "part b line 13"
    assert texts(second)[0] == "part c line 0"
    for svg in (first, second):
        assert font_size(svg) >= READABLE
        assert picture_size(svg)[1] <= HEIGHT
    (only,) = draw_slides("svg", "", blocks(*report[:3]))
    assert only == draw_picture("svg", "", blocks(*report[:3]))
    (whole,) = draw_slides("svg", "", blocks(*[Paragraph(f"line {at}") for at in range(40)]))
    assert font_size(whole) < READABLE  # there is no place to cut it


def test_a_report_without_blank_lines_is_cut_before_headings_and_after_tables() -> None:
    def report(rows: int) -> list[Block]:
        first, second = (
            Grid([Column(name)], [[f"{' ' * (at == 20)}{name} {at}"] for at in range(rows)])
            for name in ("x", "y")
        )
        notes = Paragraph("\n".join(f"note {at}" for at in range(4)))
        return [Heading("report"), first, notes, Heading("second"), second, Summary("ok")]

    def words(svg: bytes) -> list[str]:
        return [text for text in texts(svg) if text.strip("─│├┤┬┴┼╭╮╰╯")]

    first, second = draw_slides("svg", "", blocks(*report(12)))
    assert (words(first)[0], words(first)[-1]) == ("report", "note 3")
    assert (words(second)[:2], words(second)[-1]) == (["second", "y"], "✓ ok")
    slides = [words(svg) for svg in draw_slides("svg", "", blocks(*report(40)))]
    assert [(each[0], each[-1]) for each in slides] == [
        ("report", "x 18"),
        ("x", "note 3"),
        ("second", "y 18"),
        ("y", "✓ ok"),
    ]


def test_every_explanation_is_legible_on_one_slide() -> None:
    for op in ops.REGISTRY.values():
        explanation = explain_op(op, spec_of(op.name, 4, 4))
        svg = draw_picture("svg", "", partial(picture, explanation))
        assert font_size(svg) >= 24, op.name
        width, height = picture_size(svg)
        assert width <= WIDTH, op.name
        assert height <= HEIGHT, op.name
        assert max(width / WIDTH, height / HEIGHT) > 0.99, op.name
        assert "rank 3" in texts(svg)


def test_a_png_shows_the_colours_of_the_ranks() -> None:
    image_of = pytest.importorskip("PIL.Image").open
    texts = [Paragraph("█", of_rank(rank)) for rank in (0, 1)]
    image = image_of(io.BytesIO(draw_picture("png", "", blocks(*texts))))
    assert max(image.size) < HEIGHT / 4
    colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 24)}
    assert {tuple(bytes.fromhex(RANKS[rank][1:])) for rank in (0, 1)} <= colours
    assert image.getpixel((0, 0))[:3] == (255, 255, 255)


@pytest.mark.processes
@pytest.mark.parametrize("line", ["broadcast -n 2", "trace -n 2"])
def test_every_command_writes_pictures(command: Any, tmp_path: Path, line: str) -> None:
    file = tmp_path / "slide.svg"
    code, out, err = command(*shlex.split(line), "--output", str(file))
    assert (code, err) == (0, f"Wrote {file}\n")
    words = " ".join(texts(file.read_bytes())).split()
    assert {word for word in out.split() if word.isalpha()} <= set(words)


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
