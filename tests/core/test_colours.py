"""Check the palette: legible on black and on white, unmistakable, and the only one."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from math import dist
from pathlib import Path

import pytest
from rich.color import Color, ColorSystem

from distdemo.view import colours

ROOT = Path(__file__).resolve().parents[2]
ON_ANY_BACKGROUND = (*colours.RANKS, colours.GOOD, colours.BAD, colours.DOUBTFUL)
LEAST_CONTRAST = 3.8
LEAST_DISTANCE = {"neighbours": 30, "ranks": 20, "results": 40}
RED_AND_GREEN = {1, 2, 9, 10}  # among a terminal's 16 colours
OFTEN_INVISIBLE = {0, 7, 8, 15}  # black, white and greys: backgrounds of common themes
HEX = re.compile(r"#[0-9a-fA-F]{6}\b")
TERMINALS_OWN = re.compile(r'"(?:bold )?(?:bright_)?(?:red|green|yellow|blue|magenta|cyan)"')


TO_XYZ = (  # sRGB, IEC 61966-2-1; the white point is D65, the sum of each row
    (0.4124, 0.3576, 0.1805),
    (0.2126, 0.7152, 0.0722),
    (0.0193, 0.1192, 0.9505),
)


def xyz(colour: str) -> list[float]:
    """Return X, Y and Z; Y is the relative luminance, as WCAG 2.2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return [sum(share * part for share, part in zip(row, linear, strict=True)) for row in TO_XYZ]


def luminance(colour: str) -> float:
    return xyz(colour)[1]


def lab(colour: str) -> tuple[float, float, float]:
    """Return L*, a* and b* of CIELAB (ISO/CIE 11664-4)."""
    ratios = [value / sum(row) for value, row in zip(xyz(colour), TO_XYZ, strict=True)]
    x, y, z = (
        ratio ** (1 / 3) if ratio > (6 / 29) ** 3 else ratio / (3 * (6 / 29) ** 2) + 4 / 29
        for ratio in ratios
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(one: str, other: str) -> float:
    """Return the CIE76 colour difference, ΔE*ab."""
    return dist(lab(one), lab(other))


@pytest.mark.parametrize("colour", ON_ANY_BACKGROUND)
def test_a_colour_is_legible_on_black_and_on_white_in_every_terminal(colour: str) -> None:
    assert (luminance(colour) + 0.05) / 0.05 >= LEAST_CONTRAST
    assert 1.05 / (luminance(colour) + 0.05) >= LEAST_CONTRAST
    xterm = Color.parse(colour).downgrade(ColorSystem.EIGHT_BIT)
    assert xterm.get_truecolor().hex == colour


def test_no_rank_has_the_colour_of_a_result_even_among_16_colours() -> None:
    assert not {*colours.RANKS} & {colours.GOOD, colours.BAD}
    assert len({*colours.RANKS}) == len(colours.RANKS)
    numbers = [Color.parse(each).downgrade(ColorSystem.STANDARD).number for each in colours.RANKS]
    assert not {*numbers} & (RED_AND_GREEN | OFTEN_INVISIBLE)
    assert all(one != other for one, other in pairwise([*numbers, numbers[0]]))


def test_the_difference_of_two_colours_is_that_of_cie76() -> None:
    assert difference("#000000", "#ffffff") == pytest.approx(100)
    assert lab("#ff0000") == pytest.approx((53.24, 80.09, 67.20), abs=0.05)  # published values
    assert lab("#0000ff") == pytest.approx((32.30, 79.19, -107.86), abs=0.05)


def test_ranks_are_told_apart_and_from_results() -> None:
    ranks = colours.RANKS
    for one, other in pairwise([*ranks, ranks[0]]):  # rank 8 has rank 0's colour
        assert difference(one, other) >= LEAST_DISTANCE["neighbours"]
    for one, other in combinations(ranks, 2):
        assert difference(one, other) >= LEAST_DISTANCE["ranks"]
    for rank in ranks:
        for result in (colours.GOOD, colours.BAD):
            assert difference(rank, result) >= LEAST_DISTANCE["results"]


def test_the_package_and_the_site_have_no_other_palette() -> None:
    palette = {*HEX.findall(Path(colours.__file__).read_text(encoding="utf-8"))}
    files = [
        path for path in (ROOT / "distdemo").rglob("*") if path.suffix in {".py", ".css", ".js"}
    ]
    files += [ROOT / "distdemo/trace/assets/page.html", ROOT / "docs/site.css"]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    for path, text in texts.items():
        assert not {*HEX.findall(text)} - palette, path
        assert not TERMINALS_OWN.findall(text), path
    assert HEX.findall((ROOT / "docs/site.css").read_text(encoding="utf-8"))
