"""The picture of a training."""

from __future__ import annotations

import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("matplotlib")

from trainings import broken_report, made_report

from distdemo.train.records import TrainReport
from distdemo.train.view_plot import plot

BEGINNINGS = {"png": b"\x89PNG\r\n\x1a\n", "pdf": b"%PDF-", "svg": b"<?xml"}


def words(report: TrainReport) -> str:
    """All text in the picture."""
    root = ET.fromstring(plot(report, "svg"))  # noqa: S314 - our own
    return " ".join("".join(node.itertext()) for node in root.iter() if node.tag.endswith("}text"))


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_it_is_drawn_in_the_format_of_its_ending(kind: str) -> None:
    assert plot(made_report(), kind).startswith(BEGINNINGS[kind])


def test_it_says_what_was_trained_and_names_its_axes_and_lines() -> None:
    text = words(made_report())
    assert "4 ranks over gloo" in text
    for name in ("Training loss", "Test accuracy", "Epoch", "one process", "manual"):
        assert name in text
    assert "flat buffer" in text
    assert "DistributedDataParallel" in text
    alone = words(made_report("flat"))
    assert "manual" not in alone
    assert "one process" in alone


@pytest.mark.parametrize("epochs", [1, 2, 500])
def test_any_number_of_epochs_is_drawn(epochs: int) -> None:
    assert "one process" in words(made_report(epochs=epochs))


def test_what_is_no_number_leaves_a_gap() -> None:
    report = broken_report()
    run = report.runs[0]
    lost = replace(run, epochs=(*run.epochs[:-1], replace(run.epochs[-1], loss=float("nan"))))
    everything = replace(report, runs=(lost, *report.runs[1:]))
    assert "manual" in words(everything)


def test_dollar_signs_in_a_title_are_no_formula() -> None:
    report = made_report()
    assert report.task is not None
    named = replace(report, task=replace(report.task, words="a$_$b"))
    assert "a$_$b: 4 ranks" in words(named)


def test_the_same_curves_make_the_same_file() -> None:
    assert plot(made_report(), "svg") == plot(made_report(), "svg")


def test_no_window_and_no_global_state_is_needed() -> None:
    assert plot(made_report(), "png")
    assert "matplotlib.pyplot" not in sys.modules
    assert "tkinter" not in sys.modules
