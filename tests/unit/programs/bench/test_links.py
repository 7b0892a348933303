from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import permutations

import pytest

from distdemo.bench.linking import Link
from distdemo.bench.links.schedule import counts, fixed_counts, turns, visit_seconds
from distdemo.bench.links.slow import best, judged, typical

FACTOR = 2.0


def links(
    world_size: int,
    slow: Callable[[int, int], float] = lambda src, dst: 1.0,
    latency: Callable[[int, int], float] = lambda src, dst: 1.0,
) -> list[Link]:
    """All of a world: 20 µs and 5 GB/s, some so many times slower."""
    return [
        Link(src, dst, 20e-6 * latency(src, dst), 5e9 / slow(src, dst))
        for src in range(world_size)
        for dst in range(world_size)
        if src != dst
    ]


def named(found: tuple[Link, ...]) -> list[tuple[int, int]]:
    return [(link.src, link.dst) for link in found if link.slow]


def of_rank(number: int, times: float) -> Callable[[int, int], float]:
    return lambda src, dst: times if number in (src, dst) else 1.0


def of_pair(one: int, other: int, times: float) -> Callable[[int, int], float]:
    return lambda src, dst: times if {src, dst} == {one, other} else 1.0


def test_equal_links_are_none_of_them_slow() -> None:
    for size in (2, 3, 4, 8):
        found, suspects = judged(links(size), FACTOR)
        assert (named(found), suspects) == ([], ())


def test_a_slow_pair_is_named_both_ways() -> None:
    for size in (3, 4, 8):
        found, suspects = judged(links(size, of_pair(1, 2, 10)), FACTOR)
        assert named(found) == [(1, 2), (2, 1)]
        assert suspects == ()


def test_the_reason_has_figures() -> None:
    found, _ = judged(links(4, of_pair(0, 1, 10), of_pair(0, 1, 5)), FACTOR)
    assert found[0].slow == (
        "latency 100 µs, 5.0 times that of the median of the others, 20 µs; "
        "bandwidth 500 MB/s, 10 times less than the median of the others, 5 GB/s"
    )


def test_a_rank_that_is_slow_with_all_is_named_and_not_its_links() -> None:
    for size in (3, 4, 5):
        found, suspects = judged(links(size, of_rank(2, 10)), FACTOR)
        assert (named(found), suspects) == ([], (2,))


def test_a_rank_that_only_sends_slowly_is_one_too() -> None:
    found, suspects = judged(links(4, lambda src, _: 10.0 if src == 3 else 1.0), FACTOR)
    assert (named(found), suspects) == ([], (3,))


def test_beside_a_slow_rank_a_slow_link_is_still_named() -> None:
    slow = of_rank(4, 10)
    found, suspects = judged(
        links(5, lambda src, dst: max(slow(src, dst), of_pair(0, 1, 8)(src, dst))), FACTOR
    )
    assert suspects == (4,)
    assert named(found) == [(0, 1), (1, 0)]


def test_a_rank_with_one_very_slow_link_and_others_a_bit_slow_is_no_suspect() -> None:
    def slow(src: int, dst: int) -> float:
        return max(of_pair(1, 2, 100)(src, dst), 3.0 if (src, dst) == (1, 0) else 1.0)

    found, suspects = judged(links(3, slow), FACTOR)
    assert suspects == ()
    assert named(found) == [(1, 0), (1, 2), (2, 1)]


def test_of_two_ranks_one_direction_is_held_against_the_other() -> None:
    found, suspects = judged(links(2, lambda src, _: 3.0 if src else 1.0), FACTOR)
    assert (named(found), suspects) == ([(1, 0)], ())
    assert "less than the other way, 5 GB/s" in found[1].slow
    found, _ = judged(links(2, lambda src, _: 1.9 if src else 1.0), FACTOR)
    assert named(found) == []


def test_links_between_hosts_are_held_against_their_own_kind() -> None:
    hosts = ("a", "a", "b", "b")

    def across(src: int, dst: int) -> float:
        return 50.0 if hosts[src] != hosts[dst] else 1.0

    assert judged(links(4, across), FACTOR, hosts)[1] == ()
    assert named(judged(links(4, across), FACTOR, hosts)[0]) == []

    def and_one(src: int, dst: int) -> float:
        return across(src, dst) * of_pair(0, 3, 4)(src, dst)

    assert named(judged(links(4, and_one), FACTOR, hosts)[0]) == [(0, 3), (3, 0)]


def test_a_lone_rank_on_a_host_of_its_own_is_no_suspect() -> None:
    hosts = ("a", "a", "a", "b")
    found, suspects = judged(links(4, of_rank(3, 30)), FACTOR, hosts)
    assert (named(found), suspects) == ([], ())


def test_of_64_ranks_the_slow_ones_and_the_slow_links_are_found() -> None:
    rank, pair = of_rank(17, 10), of_pair(3, 60, 6)
    made = links(64, lambda src, dst: max(rank(src, dst), pair(src, dst)))
    for hosts in ((), ("a",) * 32 + ("b",) * 32):
        found, suspects = judged(made, FACTOR, hosts)
        assert suspects == (17,)
        assert named(found) == [(3, 60), (60, 3)]


@pytest.mark.parametrize("seed", range(20))
def test_each_link_is_held_against_the_median_of_all_others(seed: int) -> None:
    """What is worked out by places is what leaving out and sorting anew gives."""
    chance = random.Random(seed)
    size = chance.choice((3, 4, 5, 7))
    hosts = tuple(chance.choice("ab") for _ in range(size)) if seed % 2 else ()
    made = [
        Link(src, dst, chance.choice((1e-5, 2e-5, 5e-5)), chance.uniform(1e9, 9e9))
        for src, dst in permutations(range(size), 2)
        if chance.random() < 0.9
    ]
    found, suspects = judged(made, FACTOR, hosts)

    def crosses(link: Link) -> bool:
        return bool(hosts) and hosts[link.src] != hosts[link.dst]

    for link in found:
        others = [
            each
            for each in made
            if not {each.src, each.dst} & set(suspects)
            and crosses(each) == crosses(link)
            and (each.src, each.dst) != (link.src, link.dst)
        ]
        if not others or {link.src, link.dst} & set(suspects):
            assert link.slow == ""
            continue
        usual = typical(others)
        assert ("latency" in link.slow) == (link.latency > FACTOR * usual.latency)
        assert ("bandwidth" in link.slow) == (usual.bandwidth > FACTOR * link.bandwidth)


def test_part_of_the_links_can_be_judged() -> None:
    assert judged([], FACTOR) == ((), ())
    (only,) = judged(links(2)[:1], FACTOR)[0]
    assert only.slow == ""
    assert typical([]).latency == 0.0


def test_the_best_round_counts() -> None:
    assert best([(30e-6, 1e9), (20e-6, 0.5e9), (25e-6, 3e9)]) == (20e-6, 3e9)


def test_every_pair_has_its_turn_in_every_round() -> None:
    found = list(turns(5, 3))
    assert [turn.number for turn in found] == list(range(30))
    ways = Counter(way for turn in found for way in turn.ways)
    assert len(ways) == 20
    assert set(ways.values()) == {3}
    assert [turn.lap for turn in found] == sorted(turn.lap for turn in found)
    assert list(turns(1, 3)) == []


def test_turns_are_made_as_they_come() -> None:
    many = turns(1000, 10**9)
    assert next(many).ways == ((0, 1), (1, 0))
    assert next(many).ways == ((0, 2), (2, 0))


def test_counts_fit_into_the_time_and_are_never_none() -> None:
    assert counts(1e-3, 1e-2, 1.0).small == 200
    few = counts(1e-2, 1.0, 0.5)
    assert (few.small, few.windows, few.window) == (25, 1, 1)
    assert list(few.batches()) == [20, 5]
    slow = counts(1.0, 10.0, 0.1)
    assert (slow.small, slow.windows, slow.window) == (5, 1, 1)
    assert slow.seconds == 0.05
    exact = fixed_counts(10)
    assert (exact.small, exact.windows * exact.window) == (10, 12)
    assert visit_seconds(6.0, 3, 2) == 0.5
