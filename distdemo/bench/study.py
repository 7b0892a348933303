"""Everything that ``bench fit`` finds: the fits, the predictions, and what to think of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distdemo.bench.circumstances import differences
from distdemo.bench.fit import fit
from distdemo.bench.fitting import FitReport, FittedSeries, Prediction
from distdemo.bench.predict import alike, predict
from distdemo.bench.recorded import Recording
from distdemo.errors import UsageError


def study(
    recordings: Sequence[Recording],
    *,
    against: Sequence[Recording] = (),
    algorithm: str | None = None,
    ranks: Sequence[int] = (),
    sizes: Sequence[int] = (),
) -> FitReport:
    """The report.

    Args:
        recordings: one at least, fitted as one.
        against: not fitted: what they measured is predicted, and shown beside.
        algorithm: to take α and β from; None: the one that fits best.
        ranks: of the worlds to predict.
        sizes: to predict, in bytes; empty: those that were measured.

    Raises:
        UsageError: nothing can be fitted; no op has the algorithm; a file to compare with has
            nothing that was predicted.
    """
    series, notes = fit(recordings, algorithm)
    _check_algorithm(series, algorithm)
    _check_against(series, against)
    predictions = tuple(_predictions(series, ranks, sizes, against))
    return FitReport(
        paths=tuple(each.path for each in recordings),
        series=series,
        predictions=predictions,
        against=tuple(each.path for each in against),
        notes=tuple(_notes(recordings, against)) + notes,
    )


def _predictions(
    series: Sequence[FittedSeries],
    ranks: Sequence[int],
    sizes: Sequence[int],
    against: Sequence[Recording],
) -> Iterator[Prediction]:
    for each in series:
        measured = {
            other.key.n
            for recording in against
            for other in recording.series
            if alike(other.key, each.key) and other.key.n > 1
        }
        for n in sorted({*ranks, *measured}):
            yield predict(each, n, sizes, against)


def _check_algorithm(series: Sequence[FittedSeries], algorithm: str | None) -> None:
    known = dict.fromkeys(fit.algorithm for each in series for fit in each.fits)
    if algorithm is not None and algorithm not in known:
        raise UsageError(
            f"--algorithm {algorithm}: none of the measured operations has it.",
            f"They have: {', '.join(known)}.",
            f"Try --algorithm {next(iter(known))}.",
        )


def _check_against(series: Sequence[FittedSeries], against: Sequence[Recording]) -> None:
    for recording in against:
        keys = [each.key for each in recording.series if each.key.n > 1]
        if not any(alike(key, each.key) for key in keys for each in series):
            raise UsageError(
                f"--against {recording.path}: it has nothing of what is fitted.",
                "It has to be of the same op, form, backend and dtype, on other ranks.",
                "Leave it out.",
            )


def _notes(recordings: Sequence[Recording], against: Sequence[Recording]) -> Iterator[str]:
    """What is odd about the files, and where they are not of one machine."""
    first, *others = (*recordings, *against)
    for each in (first, *others):
        yield from each.notes
    for each in others:
        for found in differences(first, each):
            if found.weighty:
                yield (
                    f"{each.path} differs from {first.path}: {found.name} {found.new}, not "
                    f"{found.old}."
                )
