"""A training as a table, on any terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console, RenderableType
from trainings import broken_report, made_report, wild_report

from distdemo.train.records import Epoch, TrainReport
from distdemo.train.view_grids import FEW, loss_text, places
from distdemo.train.view_table import train_table, verdict_line
from distdemo.train.view_words import lesson, verdict
from distdemo.view.console import Signs

Draw = Callable[..., str]


def table(report: TrainReport) -> Callable[[Console], RenderableType]:
    return lambda console: train_table(report, console)


def row(text: str, name: str) -> list[str]:
    """The cells of the first line of a table that begins so."""
    (line, *_) = [
        line for line in text.splitlines() if re.match(rf"[│|] +{re.escape(name)} ", line)
    ]
    return [cell.strip() for cell in re.split("[│|]", line)[2:-1]]


def test_the_modes_stand_side_by_side_with_the_reference(draw: Draw) -> None:
    text = draw(table(made_report()))
    assert text.splitlines()[0] == "train · compare · 4 ranks · gloo · cpu · generated"
    assert row(text, "Epoch") == ["single", "manual", "flat", "ddp"]
    assert row(text, "1") == ["2.3000  50.0%"] * 4
    assert row(text, "3") == ["0.7667  83.3%"] * 4
    assert row(text, "Time") == ["750 ms"] * 4
    assert row(text, "Steps") == ["36"] * 4
    assert row(text, "Collectives a step") == ["—", "4", "1", "2"]
    assert row(text, "Bytes a step") == ["—", "38.4 kB", "38.4 kB", "38.4 kB"]
    assert row(text, "In communication") == ["—", *["300 ms, 40%"] * 3]
    assert row(text, "of which overlapped") == ["—", "0 µs, 0%", "0 µs, 0%", "102 ms, 34%"]
    assert row(text, "Replicas the") == ["✓ identical"] * 3
    assert row(text, "Loss of one process") == ["✓ 3.4e-07"] * 3
    assert row(text, "Weights of one process") == ["✓ 1.2e-07"] * 3
    assert "✓ manual, flat and ddp have the same weights: no difference." in text
    assert "1,536 samples and 512 tests" in text
    assert "128 samples, 32 a rank" in text
    assert "The data has 1,536 samples." in text, "the notes"


def test_what_the_ranks_do_not_share_out_evenly_is_left_out_of_the_step(draw: Draw) -> None:
    assert "A step takes 126 samples, 42 a rank." in draw(table(made_report(ranks=3)))


def test_the_verdict_is_in_a_sentence_and_then_comes_who_started_the_ranks(draw: Draw) -> None:
    *_, last, how, versions = draw(table(made_report()), columns=200).splitlines()
    assert last == (
        "✓ All 10 proofs hold: manual, flat and ddp trained as one process does on the same "
        "batches. Test accuracy 83.3%."
    )
    assert (how, versions) == ("Started by fork: it is quick.", "distdemo 1.2.3, torch 2.13")
    alone = replace(made_report("ddp"), proofs=made_report("ddp").proofs[:1])
    assert verdict(alone).startswith("The proof holds: ddp trained as one process")
    some = replace(made_report(), comparable=2)
    assert "on the same batches in the first 2 of 3 epochs, which can be compared" in verdict(some)


def test_ranks_that_others_started_say_so(draw: Draw) -> None:
    report = made_report()
    joined = replace(report, world=replace(report.world, engine="torchrun"))
    text = draw(table(joined))
    assert "Ranks of a world that others started too (torchrun)." in text


def test_a_proof_that_failed_is_marked_found_and_the_verdict(draw: Draw) -> None:
    text = draw(table(broken_report()))
    assert row(text, "Replicas the") == ["✓ identical", "✗ differ", "✓ identical"]
    flat = " ".join(text.split())
    assert "✗ flat: all replicas are the same after every epoch: rank 0 differs in epoch 3." in flat
    assert "manual: all replicas" not in flat, "the table tells what held"
    line = verdict_line(broken_report(), Signs())
    assert line.plain.startswith("✗ 1 of 10 proofs failed: flat: all replicas")
    assert line.plain.endswith(
        "Try distdemo check: it tells whether the collectives of this backend are right."
    )
    assert "rank 0 differs in epoch 3" in line.plain


def test_proofs_that_could_not_be_made_are_neither_right_nor_wrong(draw: Draw) -> None:
    text = draw(table(wild_report()), columns=200)
    assert row(text, "Replicas the") == ["✓ identical"] * 3
    assert row(text, "Loss of one process") == ["? —"] * 3
    assert row(text, "Weights of one process") == ["? —"] * 3
    assert "✗" not in text
    assert "failed" not in text
    assert "nan" not in text
    assert text.splitlines()[-3] == (
        "? That manual, flat and ddp train as one process does is neither proved nor refuted: 7 of "
        "10 proofs could not be made. Rounding grows too fast. Try a smaller --lr."
    )
    assert "That flat trains as one process does is" in verdict(wild_report("flat"))


def test_what_failed_goes_before_what_could_not_be_made(draw: Draw) -> None:
    first, *others = wild_report().proofs
    broken = replace(first, held=False, found="rank 1 differs", ranks=(1,))
    report = replace(wild_report(), proofs=(broken, *others))
    text = draw(table(report), columns=200)
    assert "? Could not be compared: rounding grows too fast." in text
    assert verdict(report).startswith("1 of 10 proofs failed: manual")


def test_one_rank_averages_nothing_and_waits_for_nobody(draw: Draw) -> None:
    text = draw(table(made_report(ranks=1)), columns=300)
    assert "In communication" not in text
    assert "overlapped" not in text
    assert "hidden" not in text
    assert "nothing to average: manual, flat and ddp call all_reduce all the same, 4, 1 and" in text
    assert "flat calls all_reduce all the same, once a step." in lesson(
        made_report("flat", ranks=1)
    )


def test_where_nothing_was_proved_all_is_not_well() -> None:
    assert verdict_line(replace(made_report(), proofs=()), Signs()).plain == "✗ Nothing was proved."


@pytest.mark.parametrize("columns", [40, 60, 72, 80, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(
    "report", [made_report(), broken_report(), wild_report(), made_report("ddp", epochs=200)]
)
def test_it_is_readable_on_any_terminal(
    report: TrainReport, encoding: str, columns: int, draw: Draw
) -> None:
    text = draw(table(report), encoding, columns)  # which asserts that no line is too long
    dash = "-" if encoding == "ascii" else "—"
    for cell in ("38.4 kB", f"? {dash}" if report.open else "1.2e-07", ", 34%"):
        assert cell in text, "a number without its end is another number"
    assert "…" not in text
    if encoding == "ascii" and not report.open:
        assert "?" not in text, "a sign that ASCII lacks"


def test_on_a_narrow_terminal_each_mode_has_its_own_list(draw: Draw) -> None:
    text = draw(table(made_report()), columns=50)
    assert "│" not in text
    modes = [line for line in text.splitlines() if line.startswith("Mode ")]
    assert modes == ["Mode single", "Mode manual", "Mode flat", "Mode ddp"]


def test_of_many_epochs_the_first_the_last_and_some_between_are_shown(draw: Draw) -> None:
    text = draw(table(made_report(epochs=100)))
    numbers = [int(found) for found in re.findall(r"^│ +(\d+) │", text, re.MULTILINE)]
    assert len(numbers) == FEW
    assert (numbers[0], numbers[-1]) == (1, 100)
    gaps = [after - before for before, after in pairwise(numbers)]
    assert max(gaps) - min(gaps) <= 1
    assert "10 of 100 epochs; --format json has them all." in text
    assert "has them all" not in draw(table(made_report(epochs=FEW)))


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 12, 19, 1000])
def test_no_epoch_is_shown_twice(count: int) -> None:
    shown = places(count)
    assert shown == sorted(set(shown))
    assert (shown[0], shown[-1]) == (0, count - 1)
    assert len(shown) == min(count, FEW)


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (2.30259, "2.3026"),
        (0.001, "0.0010"),
        (0.00012, "1.2e-04"),
        (0.0, "0.0000"),
        (9999.5, "9999.5000"),
        (1.4868e300, "1.49e+300"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_losses_keep_their_digits_however_small_they_are(loss: float, text: str) -> None:
    assert loss_text(loss) == text


def test_the_lesson_is_drawn_from_the_figures() -> None:
    text = lesson(made_report())
    assert "manual calls all_reduce 4 times" in text
    assert "calls all_reduce once" in text
    assert "ddp calls all_reduce twice" in text
    assert "34% of its communication was hidden" in text
    report = made_report()
    manual, flat, ddp = report.runs
    more = replace(report, runs=(manual, flat, replace(ddp, collectives=5, overlapped=0.0)))
    assert "ddp calls all_reduce 5 times" in lesson(more)
    assert "0% of its communication was hidden" in lesson(more)
    whole = replace(report, runs=(manual, flat, replace(ddp, collectives=1, overlapped=0.0)))
    assert "all gradients are in one bucket" in lesson(whole)
    assert "hidden" not in lesson(whole)
    alone = lesson(made_report("flat"))
    assert "manual" not in alone
    assert "ddp" not in alone
    assert "flat copies them into one buffer and calls all_reduce once" in alone


def test_a_training_that_diverged_is_shown(draw: Draw) -> None:
    report = made_report("flat")
    (run,) = report.runs
    lost = replace(run.epochs[-1], loss=float("nan"))
    epochs: tuple[Epoch, ...] = (*run.epochs[:-1], lost)
    worse: dict[str, Any] = {"difference": float("nan"), "loss_difference": float("nan")}
    text = draw(table(replace(report, runs=(replace(run, epochs=epochs, **worse),))))
    assert row(text, "3")[-1].startswith("nan")
