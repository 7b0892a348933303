"""What ``bench compare`` and ``bench fit`` say of series and ratios, in words."""

from __future__ import annotations

from collections.abc import Iterator

from distdemo.bench.comparing import Comparison, Judged, Verdict
from distdemo.bench.recorded import SeriesKey
from distdemo.bench.view_names import UNSAID
from distdemo.view.numbers import plural


def series_words(key: SeriesKey, *, ranks: bool = True) -> str:
    """``gloo all-reduce in place, 2 ranks, float32 sum``."""
    form = "" if key.form in UNSAID else key.form
    called = (key.backend, key.command, form, "async" if key.asynchronous else "", _way(key))
    size = plural(key.n, "rank") if ranks else ""
    root = "" if key.root is None else f"root {key.root}"
    pair = "" if key.src is None or key.dst is None else f"{key.src} to {key.dst}"
    data = f"{key.dtype} {key.reduce_op or ''}".strip()
    return ", ".join(filter(None, (" ".join(filter(None, called)), size, data, root, pair)))


def _way(key: SeriesKey) -> str:
    """Where the result lies; nothing of what moves no data, or between two ranks."""
    if not key.dtype or key.pattern is not None:
        return ""
    return "in place" if key.in_place else "out of place"


def ratio_words(found: Judged) -> str:
    """``1.21 (1.12–1.30)``."""
    if found.interval is None:
        return ratio(found.ratio)
    low, high = found.interval
    return f"{ratio(found.ratio)} ({ratio(low)}–{ratio(high)})"


def ratio(value: float) -> str:
    """Two decimals; three digits of what is large."""
    if value >= 9999.5:
        return f"{value:.0e}"
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def percent(share: float) -> str:
    """``10 %``, ``2.5 %``."""
    return f"{100 * share:.4g} %"


def verdict(comparison: Comparison) -> str:
    """What came of it, what looks like a failure, and whether more than the code is behind it."""
    parts = [_outcome(comparison), _suspects(comparison)]
    count = len(comparison.warnings)
    if count:
        parts.append(f"{plural(count, 'warning')} that the runs differ in more than the code.")
    return " ".join(filter(None, parts))


def _suspects(comparison: Comparison) -> str:
    """How many there are, and the worst of them, in a sentence; empty if there are none."""
    found = [judged for judged in _all(comparison) if judged.suspect]
    if not found:
        return ""
    rows = sum(row.suspect for each in comparison.series for row in each.rows)
    worst, limit = max(each.ratio for each in found), percent(comparison.rule.fail_over or 0.0)
    noise, advice = "noise", "more --launches would tell"
    if any(each.explained_by for each in found):
        noise, advice = "what the machine itself did", "measure both again, in turn"
    return (
        f"{_counted(len(found) - rows, rows)} may be slower by more than {limit}, up to "
        f"{ratio(worst)} times as long, but not clearly apart from {noise}: {advice}."
    )


def _outcome(comparison: Comparison) -> str:
    """What came of it, in one sentence."""
    limit = comparison.rule.fail_over
    if limit is not None and comparison.failing:
        rows = sum(row.fails for each in comparison.series for row in each.rows)
        told = _counted(comparison.failing - rows, rows)
        return f"Slower by more than {percent(limit)}: {told}."
    changed = [
        f"{count} {name}"
        for name in ("slower", "faster")
        if (count := sum(_counts(comparison, name)))
    ]
    if not changed:
        return _unchanged(comparison)
    unknown = comparison.count("cannot be told")
    rest = f", {unknown} of them cannot be told" if unknown else ""
    return (
        f"Changed by more than {percent(comparison.rule.threshold)}: {', '.join(changed)} "
        f"({plural(comparison.rows, 'size')} compared{rest})."
    )


def _unchanged(comparison: Comparison) -> str:
    """Of what nothing is known to have changed: how much is known not to have, and what is not."""
    limit, unknown = percent(comparison.rule.threshold), _counts(comparison, "cannot be told")
    same, explained = _counts(comparison, "no change"), _explained(comparison)
    if not any(unknown):
        return f"No change beyond {limit} ({plural(comparison.rows, 'size')} compared)."
    if not any(same):
        why = "the launches are too few, or scatter too widely"
        why = "the machine itself may explain what did" if explained else why
        return f"It cannot be told whether anything changed: {why}."
    worst = max(each.ratio for each in _all(comparison) if each.verdict == "cannot be told")
    more = [f"up to {ratio(worst)} times as long"] * (worst > 1 + comparison.rule.threshold)
    more += ["the machine itself may have a part in it"] * explained
    rest = f" ({'; '.join(more)})" if more and not comparison.suspects else ""
    return f"{_counted(*same)} unchanged within {limit}, {_counted(*unknown)} cannot be told{rest}."


def _counted(series: int, rows: int) -> str:
    """``1 series and 2 sizes``; what is none is not named."""
    parts = [f"{series} series" if series else "", plural(rows, "size") if rows else ""]
    return " and ".join(filter(None, parts))


def _counts(comparison: Comparison, verdict: Verdict) -> tuple[int, int]:
    """Series and rows with this verdict."""
    series = sum(each.overall.verdict == verdict for each in comparison.series)
    return series, comparison.count(verdict)


def _explained(comparison: Comparison) -> bool:
    """Whether the machine itself may be why anything changed."""
    return any(judged.explained_by for judged in _all(comparison))


def _all(comparison: Comparison) -> Iterator[Judged]:
    """Each series as a whole, and its rows."""
    for each in comparison.series:
        yield each.overall
        yield from each.rows
