"""Are the measured times in the order that the model gives? In sentences, with the reason why not.

Two times are told apart where the intervals of their medians don't overlap, two predictions where
they differ by more than α and β are good for. Only pairs that both tell apart can speak for or
against the model. A reason is given only where figures have it: another account of the same
schedules (links that the ranks share; messages and bytes of all ranks together, not of the longest
way) that puts right what the model has the wrong way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

from distdemo.bench.figures import time_text
from distdemo.trace.accounts import (
    Account,
    Circumstances,
    Rival,
    accounts,
    predicted,
    ratio_text,
    shared,
    sharing_words,
)
from distdemo.trace.contending import Contender, Timing

NEAR = 1.1
"""Predictions that differ by no more than this factor are not told apart: α and β are medians of
measurements, too."""

FAR = 2.0
"""A round that takes so many times α is not what the model means."""

SLICE = 1e-3
"""Seconds; a scheduler lets a process run for some of these before it is another one's turn."""

HOUR = 3600  # seconds

Pair = tuple[Rival, Rival]
"""The first was the faster one."""


def order(contenders: Sequence[Contender], around: Circumstances) -> Iterator[str]:
    """Sentences on the measured times of one size."""
    rivals = [
        Rival(each.about.name, each.counts, each.timing, each.predicted, each.shared)
        for each in contenders
        if each.counts is not None and each.timing is not None and each.predicted is not None
    ]
    if len(rivals) > 1 and around.n > 1:
        yield from _verdict(rivals, around)
        yield _distance(rivals)
        if _small(rivals, around):
            yield from _rounds(rivals, around)
            yield from _slices(rivals, around)
    own = next((each for each in contenders if each.own and each.timing is not None), None)
    ran = [each for each in contenders if not each.own and each.timing is not None]
    if own is not None and own.timing is not None and ran:
        yield _beside_own(own.timing, ran, around)


def _verdict(rivals: Sequence[Rival], around: Circumstances) -> Iterator[str]:
    """Whether the order is the model's."""
    told = faster(rivals)
    judged = [pair for pair in told if apart(pair, predicted)]
    wrong = [pair for pair in judged if reversed_by(pair, predicted)]
    named = listed([each.name for each in sorted(rivals, key=lambda each: each.timing.median)])
    if not told:
        yield "No two algorithms can be told apart: the intervals of their medians overlap."
    elif not judged:
        yield "The model has all of these, that can be told apart, equally fast."
    elif not wrong:
        yield (
            f"The measured times are in the order that the model gives, in {_all_of(judged)} "
            f"that both tell apart; as measured, the fastest first: {named}."
        )
    else:
        yield (
            f"Of the pairs that can be told apart, {len(wrong)} of {len(judged)} "
            f"{'is' if len(wrong) == 1 else 'are'} not in the "
            f"order that the model gives; as measured, the fastest first: {named}."
        )
        yield _worst(wrong)
        yield _reason(told, wrong, around)


def _all_of(pairs: Sequence[Pair]) -> str:
    return "the one pair" if len(pairs) == 1 else f"all {len(pairs)} pairs"


def _worst(wrong: Sequence[Pair]) -> str:
    """The pair that contradicts the model most."""
    one, other = max(wrong, key=lambda pair: pair[0].predicted / pair[1].predicted)
    return (
        f"The model has {other.name} before {one.name} ({_time(other.predicted)} and "
        f"{_time(one.predicted)}); measured are {_time(other.timing.median)} and "
        f"{_time(one.timing.median)}."
    )


# --------------------------------------------------------------------------------- the reason


def _reason(told: Sequence[Pair], wrong: Sequence[Pair], around: Circumstances) -> str:
    """What explains it: the first account that has no pair the wrong way round, else the best."""
    known = [(each, words) for each, words in accounts(around) if _has(each, told)]
    for account, words in known:
        if explains(account, told, wrong):
            return f"{words} the order is as measured."
    found = [
        (len(mended) - len(broken), len(mended), words)
        for account, words in known
        for mended, broken in [_changed(account, told, wrong)]
    ]
    best = max(found, default=(0, 0, ""), key=lambda each: each[:2])
    if best[0] <= 0:
        return "Nothing that was counted or measured here explains it."
    if best[1] == len(wrong):
        return f"{best[2]} all of these are as measured, but {best[1] - best[0]} others are not."
    return (
        f"{best[2]} {best[1]} of these {len(wrong)} are as measured; the others are not explained."
    )


def _has(account: Account, told: Sequence[Pair]) -> bool:
    """Whether it is known of all."""
    return account is not shared or all(each.shared is not None for pair in told for each in pair)


def explains(account: Account, told: Sequence[Pair], wrong: Sequence[Pair]) -> bool:
    """Whether it puts right all that the model has wrong, and gets nothing else wrong."""
    mended, broken = _changed(account, told, wrong)
    return len(mended) == len(wrong) and not broken


def _changed(
    account: Account, told: Sequence[Pair], wrong: Sequence[Pair]
) -> tuple[list[Pair], list[Pair]]:
    """The pairs that it puts right, and those that it gets wrong where the model does not."""
    mended = [pair for pair in wrong if account(pair[0]) < account(pair[1])]
    broken = [pair for pair in told if pair not in wrong and reversed_by(pair, account)]
    return mended, broken


# ---------------------------------------------------------------------------------- the pairs


def faster(rivals: Sequence[Rival]) -> list[Pair]:
    """Those that the measurement tells apart."""
    return [pair for pair in permutations(rivals, 2) if pair[0].timing.high < pair[1].timing.low]


def apart(pair: Pair, account: Account) -> bool:
    """Whether the account tells them apart."""
    low, high = sorted(map(account, pair))
    return high > NEAR * low


def reversed_by(pair: Pair, account: Account) -> bool:
    """Whether it has the slower one clearly before the faster one."""
    return account(pair[0]) > NEAR * account(pair[1])


# ---------------------------------------------------------------------------------- the figures


def _distance(rivals: Sequence[Rival]) -> str:
    """How far the times are from the predicted ones."""
    plain = _span([each.timing.median / each.predicted for each in rivals if each.predicted])
    shared = _span([each.timing.median / each.shared for each in rivals if each.shared])
    if not plain:
        return "The model predicts no time at all: nothing is sent."
    more = f", {shared} with links that are shared" if shared else ""
    return f"The measured times are {plain} what the model predicts{more}."


def _small(rivals: Sequence[Rival], around: Circumstances) -> bool:
    """Whether bytes hardly count, by the model."""
    if around.link is None:
        return False
    alpha = around.link.link.alpha
    return all(each.counts.alphas * alpha >= each.predicted / 2 for each in rivals)


def _rounds(rivals: Sequence[Rival], around: Circumstances) -> Iterator[str]:
    """What a round really took, where it is far from α."""
    alpha = around.link.link.alpha if around.link is not None else 0.0
    found = [each.timing.median / each.counts.alphas for each in rivals if each.counts.alphas]
    if found and min(found) > FAR * alpha:
        yield (
            f"A round took {_time(min(found))} to {_time(max(found))} of any of them, and "
            f"α is {_time(alpha)}: here it is waiting for each other that costs, not sending."
        )


def _slices(rivals: Sequence[Rival], around: Circumstances) -> Iterator[str]:
    """That ranks wait for cores, where any took as long as that takes, and far from predicted."""
    late = any(
        each.timing.median >= max(SLICE, FAR * each.predicted) for each in rivals if each.predicted
    )
    if around.crowded and late:
        yield (
            f"{sharing_words(around)}: a rank may wait for its turn on a core as long as a slice "
            "of the scheduler's, some ms. Small sizes jump by that from run to run."
        )


def _time(seconds: float) -> str:
    """From an hour on in hours, as the tables have it."""
    return time_text(seconds) if seconds < HOUR else f"{seconds / HOUR:,.3g} h"


def _span(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    low, high = ratio_text(min(ratios)), ratio_text(max(ratios))
    return high if low == high else f"{low.removesuffix(' times')} to {high}"


def _beside_own(own: Timing, ran: Sequence[Contender], around: Circumstances) -> str:
    """The backend's own call beside the fastest algorithm."""
    timed = [(each.timing.median, each.about.name) for each in ran if each.timing is not None]
    seconds, name = min(timed)
    ratio = ratio_text(own.median / seconds) if seconds else "not comparable with"
    return (
        f"{around.backend}'s own call took {_time(own.median)}, {ratio} what the fastest "
        f"algorithm did ({name}, {_time(seconds)}). Its schedule is not known, so nothing is "
        "predicted for it."
    )


def listed(names: Sequence[str]) -> str:
    """``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
