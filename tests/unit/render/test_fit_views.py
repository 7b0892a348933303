"""Fitted models and predictions, as text, as a document and as a picture."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from distdemo.bench.fitting import (
    ASSUMPTIONS,
    Bend,
    Crossover,
    Fit,
    FitReport,
    FittedSeries,
    Link,
    Point,
    Predicted,
    Prediction,
)
from distdemo.bench.recorded import SeriesKey
from distdemo.bench.view_fit_document import fit_document
from distdemo.bench.view_fit_table import fit_table, verdict_lines
from distdemo.bench.view_fit_words import fastest, misfit_words, verdict
from distdemo.view.console import signs
from distdemo.view.document import dumps

KEY = SeriesKey("gloo", "all-reduce", "tensor", True, False, 2, "float32", "sum")
LINK = Link(30e-6, 0.5e-9)
POINTS = tuple(Point(n, size, 1e-4 * n) for n in (2, 4) for size in (8, 1024, 1 << 20))


def fit(name: str, **more) -> Fit:
    fields = {
        "algorithm": name,
        "formula": "2(n−1)α + 2(n−1)/n·Sβ",
        "source": "Thakur et al. 2005, 4.5",
        "link": LINK,
        "alpha_interval": (29e-6, 31e-6),
        "beta_interval": (0.4e-9, 0.6e-9),
        "median_error": 0.031,
        "max_error": 0.12,
        "residuals": (0.01, -0.02, 0.0, 0.05, 0.5, 0.6),
    }
    return Fit(**{**fields, **more})


SERIES = FittedSeries(
    KEY, "all_reduce", POINTS, (fit("ring"), fit("halving-doubling")), True, "ring", "It fits best."
)
BEND = Bend(32768, Link(5e-6, 1e-9), Link(400e-6, 0.05e-9), 0.02)
BAD = replace(
    SERIES,
    fits=(
        fit("ring", misfit="error", median_error=0.42, beta_interval=None, alpha_interval=None),
        fit("flat", link=Link(0.0, 0.0), beta_interval=(0.0, 1e-9)),
    ),
    told_apart=False,
    why="It is assumed: nobody knows.",
)
PREDICTION = Prediction(
    KEY,
    "all_reduce",
    1_000_000,
    LINK,
    "ring",
    tuple(Predicted(size, {"ring": 60.4, "halving-doubling": 1.2e-3}) for size in (8, 1 << 20)),
    (Crossover(6e10, "halving-doubling", "ring"),),
)
REPORT = FitReport(("two.json", "four.json"), (SERIES,), (PREDICTION,), notes=("Both are odd.",))


def table(report: FitReport):
    return lambda console: fit_table(report, console)


def test_the_fits_stand_in_a_table_with_their_error_and_formula(draw):
    text = draw(table(REPORT))
    assert "gloo all-reduce in place, float32 sum, 2 and 4 ranks" in text
    assert "▶ ring" in text
    assert "30.0 (29.0–31.0)" in text
    assert "2.00 (1.67–2.50)" in text
    assert "3.1 %, 12 %" in text
    assert "T = 2(n−1)α + 2(n−1)/n·Sβ; Thakur et al. 2005" in text
    assert "It fits best." in text
    assert "Both are odd." in text
    assert text.rstrip().endswith("β = 0.50 ns/B (2.00 GB/s), median error 3.1 %.")


def test_a_prediction_is_marked_as_one_with_what_it_assumes(draw):
    text = " ".join(draw(table(REPORT)).split())
    assert "PREDICTION, on paper: gloo all-reduce in place, float32 sum on 1,000,000 ranks" in text
    assert "★ 1.20 ms" in text
    assert "60.4 s" in text
    assert "Fastest: halving-doubling up to 55.9 GiB, ring beyond." in text
    for words in ASSUMPTIONS:
        assert words in text
    without = draw(table(replace(REPORT, predictions=())))
    assert "PREDICTION" not in without
    assert "assumed" not in without


def test_what_was_measured_stands_beside_what_was_predicted(draw):
    rows = tuple(replace(each, measured=50.0) for each in PREDICTION.rows[:1])
    rows += (replace(PREDICTION.rows[1], measured=None),)
    text = draw(
        table(replace(REPORT, predictions=(replace(PREDICTION, rows=rows, misfit="error"),)))
    )
    assert "Predicted (ring)" in text
    assert "+21 %" in text
    assert "trust this less" in text


def test_one_that_does_not_fit_says_so_and_why(draw):
    text = " ".join(draw(table(replace(REPORT, series=(BAD,)))).split())
    assert "! It does not fit: half of its times are more than 25 % off" in text
    assert "2 ranks: 1 % off, 4 ranks: 50 % off" in text
    assert "It is assumed" in text
    assert "ring does not fit" in text
    assert "—" in text, "without a β there is no bandwidth"
    bent = replace(BAD, fits=(fit("ring", misfit="systematic", bend=BEND),))
    assert "There is a bend at 32 KiB" in misfit_words(bent)
    assert "5.00 µs" in misfit_words(bent)
    assert misfit_words(SERIES) == ""


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("report", [REPORT, replace(REPORT, series=(BAD,))])
def test_it_is_readable_on_any_terminal(report, encoding, columns, draw):
    text = draw(table(report), encoding, columns)
    assert "…" not in text
    assert "?" not in text, "a sign that ASCII lacks"
    assert "60.4 s" in text
    assert ("alpha = 30.0 us" if encoding == "ascii" else "α = 30.0 µs") in " ".join(text.split())


def test_on_a_narrow_terminal_a_prediction_is_a_list(draw):
    names = ("ring", "tree", "doubling", "halving-doubling", "flat")
    rows = (Predicted(8, {name: 1e-3 * at for at, name in enumerate(names, start=1)}),)
    text = draw(table(replace(REPORT, predictions=(replace(PREDICTION, rows=rows),))), columns=50)
    assert "  ring              ★ 1.00 ms" in text.splitlines()
    assert "  halving-doubling  4.00 ms" in text.splitlines()


def test_the_verdict_is_a_line_a_series(draw):
    text = draw(lambda console: verdict_lines(REPORT, signs(console)), columns=200)
    assert text == f"✓ {verdict(SERIES)}.\n"


def test_where_one_is_always_fastest_it_is_said():
    always = replace(PREDICTION, crossovers=())
    assert fastest(always) == "Fastest at any size: halving-doubling."
    only = tuple(Predicted(8, {"message": 1e-3}) for _ in range(2))
    assert fastest(replace(always, rows=only)) == ""


def test_the_document_is_in_si_units():
    found = json.loads(dumps(fit_document(REPORT)))
    assert (found["command"], found["ok"]) == ("bench fit", True)
    (series,) = found["fits"]
    assert (series["op"], series["world_sizes"], series["chosen"]) == ("all_reduce", [2, 4], "ring")
    ring = series["algorithms"][0]
    assert (ring["alpha_seconds"], ring["beta_seconds_per_byte"]) == (30e-6, 0.5e-9)
    assert ring["bandwidth_bytes_per_second"] == pytest.approx(2e9)
    assert ring["alpha_interval_seconds"] == [29e-6, 31e-6]
    assert (ring["fits"], ring["misfit"], ring["bend"]) == (True, None, None)
    assert len(series["points"]) == len(ring["relative_residuals"]) == len(POINTS)
    (prediction,) = found["predictions"]
    assert (prediction["prediction"], prediction["group_size"]) == (True, 1_000_000)
    assert prediction["rows"][0]["seconds"] == {"ring": 60.4, "halving-doubling": 1.2e-3}
    assert prediction["crossovers"] == [
        {"bytes": 6e10, "below": "halving-doubling", "above": "ring"}
    ]
    assert found["assumptions"] == list(ASSUMPTIONS)
    bad = fit_document(
        replace(REPORT, series=(replace(BAD, fits=(fit("ring", misfit="error", bend=BEND),)),))
    )
    (entry,) = bad["fits"][0]["algorithms"]
    assert (entry["fits"], entry["bend"]["bytes"]) == (False, 32768)


def test_the_picture_has_points_and_curves():
    pytest.importorskip("matplotlib")
    from distdemo.bench.view_fit_plot import plot

    made = plot(replace(REPORT, series=(SERIES, BAD, SERIES)), "svg")
    root = ET.fromstring(made)  # noqa: S314 - our own
    text = " ".join("".join(node.itertext()) for node in root.iter() if node.tag.endswith("}text"))
    for words in ("2 ranks, measured", "4 ranks, ring", "Size", "Time", "α = 30.0 µs"):
        assert words in text
    assert "matplotlib.pyplot" not in sys.modules


@pytest.mark.parametrize("name", ["a$_$b", "$\\frac{1}$", "a$^^$"])
def test_dollar_signs_in_a_name_are_no_formula(name):
    pytest.importorskip("matplotlib")
    from distdemo.bench.view_fit_plot import plot

    series = replace(SERIES, key=replace(KEY, backend=name))
    made = plot(replace(REPORT, series=(series,)), "svg").decode()
    assert name in made
    assert "mathdefault" not in made, "the axes' own labels are no formulas, either"
