"""What ``bench fit`` says of models, in words."""

from __future__ import annotations

from statistics import median

from distdemo.bench.fitting import MEDIAN_LIMIT, FittedSeries, Link, Prediction
from distdemo.bench.view_compare_words import percent, series_words
from distdemo.bench.view_numbers import digits, rate_text, short_size
from distdemo.view.numbers import duration


def title(series: FittedSeries) -> str:
    """``gloo all-reduce out of place, 2 and 4 ranks, float32 sum``."""
    *others, last = map(str, series.worlds)
    ranks = f"{', '.join(others)} and {last}" if others else last
    return f"{series_words(series.key, ranks=False)}, {ranks} ranks"


def link_words(link: Link) -> str:
    """``α = 30.0 µs, β = 0.50 ns/B (2.00 GB/s)``."""
    return f"α = {duration(link.alpha)}, β = {nanoseconds(link.beta)} ns/B ({bandwidth(link.beta)})"


def nanoseconds(beta: float) -> str:
    """Of a byte."""
    return digits(beta * 1e9)


def bandwidth(beta: float) -> str:
    """1/β; without a β there is no limit to it."""
    return rate_text(1 / beta) if beta > 0 else "without limit"


def error(value: float) -> str:
    """A relative error: ``3.1 %``, ``48 %``."""
    return percent(round(value, 3 if value < 0.1 else 2))


def misfit_words(series: FittedSeries) -> str:
    """Why it does not fit, with what is likely behind it; empty if it does."""
    fit = series.best
    if not fit.misfit:
        return ""
    if fit.misfit == "error":
        why = f"half of its times are more than {percent(MEDIAN_LIMIT)} off"
    else:
        why = f"its errors, up to {error(fit.max_error)}, are no noise: they go by size or ranks"
    if fit.bend is not None:
        bend = fit.bend
        return (
            f"It does not fit: {why}. There is a bend at {short_size(bend.size)}, as where a "
            f"library changes its protocol or buffers leave a cache: below, "
            f"{link_words(bend.small)}; from there on, {link_words(bend.large)}; so the error is "
            f"{error(bend.error)}."
        )
    worlds = _by_world(series)
    return (
        f"It does not fit: {why}{worlds}. Another algorithm, one that changes with the size, or "
        "ranks that share cores would do that."
    )


def _by_world(series: FittedSeries) -> str:
    """The error on each number of ranks, where there are several."""
    if len(series.worlds) == 1:
        return ""
    pairs = list(zip(series.points, series.best.residuals, strict=True))
    errors = (
        (n, median(abs(each) for point, each in pairs if point.n == n)) for n in series.worlds
    )
    return f" ({', '.join(f'{n} ranks: {error(value)} off' for n, value in errors)})"


def verdict(series: FittedSeries) -> str:
    """What came of it, in a line."""
    best = series.best
    fits = "does not fit" if best.misfit else "fits"
    return (
        f"{title(series)}: {best.algorithm} {fits}, {link_words(best.link)}, median error "
        f"{error(best.median_error)}"
    )


def fastest(prediction: Prediction) -> str:
    """Which algorithm is fastest from which size to which."""
    found = prediction.crossovers
    if not found:
        row = prediction.rows[0]
        return f"Fastest at any size: {row.fastest}." if len(row.seconds) > 1 else ""
    parts = [f"{each.below} up to {short_size(each.size)}" for each in found]
    return f"Fastest: {', '.join(parts)}, {found[-1].above} beyond."
