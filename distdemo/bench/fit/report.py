"""Report of ``bench fit``: the fitted series and predictions for other worlds. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from distdemo.encoding import derived
from distdemo.errors import UsageError
from distdemo.measure.fit import FittedSeries, costs_of, fit
from distdemo.measure.recording import Recording, differences
from distdemo.measure.records import Answer, SeriesSpec
from distdemo.view.format import plural, plus_minus, short_size


@dataclass(frozen=True, slots=True)
class Predicted:
    """A size in a world that was not measured.

    Attributes:
        predicted_s: Time by algorithm.
    """

    size_bytes: int
    predicted_s: dict[str, float]

    @derived
    def fastest(self) -> str:
        """Fastest algorithm."""
        return min(self.predicted_s, key=lambda name: self.predicted_s[name])


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted times of one op on this number of ranks, by each of its algorithms."""

    spec: SeriesSpec
    ranks: int
    rows: tuple[Predicted, ...]


@dataclass(frozen=True, slots=True)
class FitReport:
    """Fits and predictions.

    Attributes:
        files: Files that were fitted.
        predictions: Predictions for the series whose model fits.
        notes: Series left out, unsteady files and differences between the files, in sentences.
    """

    files: tuple[str, ...]
    series: tuple[FittedSeries, ...]
    predictions: tuple[Prediction, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    ok: ClassVar[bool] = True


def make_report(
    recordings: Sequence[Recording],
    *,
    algorithm: str | None = None,
    ranks: Sequence[int] = (),
    sizes: Sequence[int] = (),
) -> FitReport:
    """Return the report of ``bench fit``.

    Args:
        recordings: At least one recording; all are fitted together.
        algorithm: Algorithm to take α and β from; None for the one that fits best.
        ranks: Sizes of the worlds to predict.
        sizes: Sizes to predict, in bytes.

    Raises:
        UsageError: Nothing can be fitted, or no op has the algorithm.
    """
    series, notes = fit(recordings, algorithm)
    known = list(dict.fromkeys(each.algorithm for one in series for each in one.fits))
    if algorithm is not None and algorithm not in known:
        raise UsageError(
            f"--algorithm {algorithm}: none of the measured operations has it.",
            f"Choices: {', '.join(known)}.",
            f"Try --algorithm {known[0]}.",
        )
    first, *others = recordings
    return FitReport(
        files=tuple(each.file for each in recordings),
        series=series,
        predictions=tuple(
            predict(each, n, sizes)
            for each in series
            if each.best.is_good
            for n in sorted({*ranks})
        ),
        notes=(
            *notes,
            *(note for each in recordings for note in _unsteady_notes(each)),
            *(note for each in others for note in _difference_notes(first, each)),
        ),
    )


def _unsteady_notes(recording: Recording) -> Iterator[str]:
    """Yield a sentence if the file's medians are uncertain, so that α and β are too."""
    rows = [row for series in recording.series.values() for row in series.rows]
    unsteady = [row for row in rows if not row.steady]
    if not unsteady:
        return
    widest = max(unsteady, key=lambda row: row.spread_share or 0.0)
    sizes = f"{len(unsteady)} of {plural(len(rows), 'size')}"
    width = "some have no interval"
    if all(row.spread_share is not None for row in unsteady):
        width = (
            f"up to {plus_minus(widest.spread_share or 0.0)}, at {short_size(widest.size_bytes)}"
        )
    within = plus_minus(recording.report.spec.precision)
    yield (
        f"{recording.file}: {sizes} not steady within {within} ({width}), so α and β are uncertain."
    )
    if recording.report.answer in (Answer.DISTURBED, Answer.SLOW):
        yield f"{recording.file}: bench's answer was {recording.report.answer}."


def _difference_notes(first: Recording, other: Recording) -> Iterator[str]:
    serious = [each for each in differences(first, other) if each.serious]
    if serious:
        text = ", ".join(f"{each.name} {each.new}, not {each.old}" for each in serious)
        yield f"{other.file} differs from {first.file}: {text}."


def predict(series: FittedSeries, ranks: int, sizes: Sequence[int]) -> Prediction:
    """Predict one op on this number of ranks by each of its algorithms.

    Args:
        series: A fitted series.
        ranks: Number of ranks, at least 2.
        sizes: Sizes in bytes; empty for the smallest, a middle and the largest fitted size.
    """
    fitted = sorted({point.size_bytes for point in series.points})
    default = {fitted[0], fitted[len(fitted) // 2], fitted[-1]}
    costs = costs_of(series.spec.op.op, ranks)
    alpha, beta = series.best.alpha_s, series.best.beta_s_per_byte
    rows = [
        Predicted(size, {each.algorithm: each.seconds(size, alpha, beta) for each in costs})
        for size in sorted(set(sizes) or default)
    ]
    spec = replace(series.spec, world_size=ranks, sizes_bytes=(), groups=())
    return Prediction(spec, ranks, tuple(rows))
