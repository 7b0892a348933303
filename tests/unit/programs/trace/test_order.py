"""The order of measured times in sentences: as the model says, or the reason that figures have."""

from __future__ import annotations

from distdemo.bench.fitting import Link
from distdemo.trace.accounts import Circumstances
from distdemo.trace.contending import Contender, LinkSource, Timing
from distdemo.trace.order import listed, order
from distdemo.trace.scheduling import About, Counts

PAIR, TOGETHER = Link(1e-4, 1e-10), Link(4e-4, 2e-10)
HERE = Circumstances("gloo", 4, 2.0, LinkSource(PAIR, "measured", TOGETHER))
ALONE = Circumstances("gloo", 4, 8.0, LinkSource(PAIR, "given"))


def contender(
    name: str,
    median: float,
    predicted: float | None = None,
    *,
    shared: float | None = None,
    total: int = 100,
    messages: int = 10,
    rounds: int = 4,
    spread: float = 0.02,
) -> Contender:
    timing = Timing(median, median * (1 - spread), median * (1 + spread), 9, 0, 9)
    about = About(name, "", "")
    if predicted is None:
        return Contender(about, own=True, timing=timing)
    ends = (total, total, total, total, total, 0, total)
    counts = Counts(rounds, messages, (), (), *ends, alphas=rounds, serial=total)
    return Contender(about, counts=counts, timing=timing, predicted=predicted, shared=shared)


def said(*contenders: Contender, around: Circumstances = HERE) -> list[str]:
    return list(order(contenders, around))


def test_times_in_the_models_order_are_said_to_be() -> None:
    first, figures = said(
        contender("ring", 3.0, 2.0), contender("tree", 1.0, 0.5), contender("naive", 9.0, 4.0)
    )
    assert "in the order that the model gives, in all 3 pairs" in first
    assert first.endswith("the fastest first: tree, ring and naive.")
    assert figures == "The measured times are 1.5 to 2.2 times what the model predicts."


def test_a_single_pair_is_one_pair() -> None:
    first, *_ = said(contender("ring", 3.0, 2.0), contender("tree", 1.0, 0.5))
    assert "in the one pair that both tell apart" in first
    first, *_ = said(contender("ring", 3.0, 0.5), contender("tree", 1.0, 2.0))
    assert "1 of 1 is not in the order" in first


def test_intervals_that_overlap_tell_nothing_apart() -> None:
    first, *_ = said(
        contender("ring", 1.0, 2.0, spread=0.2), contender("tree", 1.2, 0.5, spread=0.2)
    )
    assert first == "No two algorithms can be told apart: the intervals of their medians overlap."


def test_predictions_that_are_near_contradict_nothing() -> None:
    first, *_ = said(contender("ring", 1.0, 2.0), contender("tree", 2.0, 1.9))
    assert "equally fast" in first


def test_shared_links_are_the_reason_where_they_put_it_right() -> None:
    first, worst, why, figures = said(
        contender("ring", 3.0, 0.5, shared=2.5), contender("tree", 1.0, 1.0, shared=1.0)
    )
    assert first.startswith("Of the pairs that can be told apart, 1 of 1 is not in the order")
    assert worst == "The model has ring before tree (500 ms and 1 s); measured are 3 s and 1 s."
    assert why == (
        "The model gives every pair of ranks a link of its own. Here 4 ranks share 2 cores. Beside "
        "one of two messages at once, one of 4 costs 4.0 times the α and 2.0 times the β. With "
        "that the order is as measured."
    )
    assert figures.endswith("1.0 to 1.2 times with links that are shared.")


def test_what_all_ranks_do_is_the_reason_where_shared_links_are_not() -> None:
    _, _, why, _ = said(
        contender("ring", 1.0, 1.0, shared=9.0, messages=24),
        contender("naive", 3.0, 0.5, shared=1.0, messages=36),
    )
    assert "the messages and bytes of all ranks" in why
    assert "(4 ranks share 2 cores), the order is as measured." in why
    assert why.endswith("the order is as measured.")


def test_ranks_with_cores_of_their_own_share_none() -> None:
    _, _, why, _ = said(
        contender("ring", 1.0, 1.0, total=100),
        contender("naive", 3.0, 0.5, total=300),
        around=ALONE,
    )
    assert "share" not in why
    assert "By the bytes that all ranks send the order is as measured." in why


def test_messages_in_all_are_the_reason_where_bytes_are_not() -> None:
    _, _, why, _ = said(
        contender("ring", 3.0, 0.5, total=100, messages=24),
        contender("tree", 1.0, 1.0, total=100, messages=6),
        around=ALONE,
    )
    assert "By the messages that all ranks send the order is as measured." in why


def test_what_explains_a_part_is_said_to_explain_a_part() -> None:
    _, _, why, _ = said(
        contender("a", 1.0, 4.0, total=100),
        contender("b", 2.0, 2.0, total=200),
        contender("c", 3.0, 1.0, total=200),
        around=ALONE,
    )
    assert "2 of these 3 are as measured; the others are not explained." in why


def test_what_gets_others_wrong_is_no_full_explanation() -> None:
    _, _, why, _ = said(
        contender("a", 1.0, 4.0, total=100),
        contender("b", 2.0, 3.0, total=200),
        contender("c", 3.0, 1.0, total=400),
        contender("d", 9.0, 5.0, total=300),
        around=ALONE,
    )
    assert why.endswith("all of these are as measured, but 1 others are not.")


def test_what_nothing_explains_is_said_to_be_unexplained() -> None:
    _, _, why, _ = said(contender("a", 1.0, 2.0), contender("b", 2.0, 1.0), around=ALONE)
    assert why == "Nothing that was counted or measured here explains it."


def test_rounds_that_cost_far_more_than_alpha_are_waiting() -> None:
    *_, rounds, slices = said(contender("a", 8e-3, 5e-4), contender("b", 4e-3, 4e-4))
    assert rounds.startswith("A round took 1 ms to 2 ms of any of them, and α is 100 µs")
    assert slices.startswith("4 ranks share 2 cores: a rank may wait for its turn")


def test_a_slice_is_spoken_of_only_where_figures_have_it() -> None:
    late, early = contender("a", 8e-3, 4e-4), contender("b", 9e-4, 3e-4)
    assert any("a slice" in each for each in said(late, early))
    for others, around in (
        ((late, early), ALONE),
        ((contender("a", 7e-4, 3e-4), early), HERE),
        ((contender("a", 8e-3, 5e-3, rounds=50), contender("b", 6e-3, 4e-3, rounds=40)), HERE),
        ((contender("a", 8e-2, 5e-3), contender("b", 9e-2, 4e-3)), HERE),
    ):
        assert not any("a slice" in each for each in said(*others, around=around))


def test_one_alone_is_told_beside_one_of_two() -> None:
    source = LinkSource(PAIR, "measured", TOGETHER, Link(5e-5, 5e-11))
    _, _, why, *_ = said(
        contender("ring", 3.0, 0.5, shared=2.5),
        contender("tree", 1.0, 1.0, shared=1.0),
        around=Circumstances("gloo", 4, 8.0, source),
    )
    assert "own. Beside one of two messages at once, one alone costs 0.5 times the α" in why


def test_hours_are_hours() -> None:
    _, worst, *_ = said(contender("a", 1.0, 9000.0), contender("b", 2.0, 7200.0))
    assert worst.startswith("The model has b before a (2 h and 2.5 h)")


def test_the_backends_own_call_stands_beside_the_fastest() -> None:
    (only,) = said(contender("all_reduce", 2.0), contender("ring", 4.0, 1.0))
    assert only.startswith("gloo's own call took 2 s, 0.5 times what the fastest algorithm did")
    assert "(ring, 4 s)" in only


def test_what_was_not_run_is_not_spoken_of() -> None:
    alone = Circumstances("gloo", 1, 2.0, None)
    assert said(around=alone) == []
    assert said(contender("ring", 1.0, 0.0), contender("tree", 1.0, 0.0), around=alone) == []


def test_names_in_a_row() -> None:
    assert [listed(list("abc")), listed(list("ab")), listed(["a"])] == [
        "a, b and c",
        "a and b",
        "a",
    ]
