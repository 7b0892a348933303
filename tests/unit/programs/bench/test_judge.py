from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from distdemo.bench.judge import judge
from distdemo.bench.old_records import Row
from distdemo.bench.summary import row
from distdemo.bench.yardsticks import Judgement, Limit, Setup
from distdemo.launcher.records import WorldSpec

# What a machine with two cores measured between two ranks over gloo, all in one run: bytes and
# seconds of an all_reduce, and the limits beside it.
GLOO = {
    8: 56e-6,
    1024: 70e-6,
    16384: 72e-6,
    65536: 77e-6,
    262144: 104e-6,
    1 << 20: 210e-6,
    1 << 22: 780e-6,
    1 << 24: 6.0e-3,
    1 << 25: 14.6e-3,
}
STREAMS = {5.2e9: 2, 7e9: 1, 12e9: 0}
"""What runs on that machine found for all ranks at once; and how many of the sizes may pass for
ordinary when all take five times as long."""
LATENCY = 2.9e-6


def setup(
    bandwidth: float = 7e9, *, ranks: int = 2, cores: float = 2, latency: float | None = LATENCY
) -> Setup:
    alone = Limit("TCP stream", (0, 1), False, 2 * bandwidth, 1 << 22, latency)
    bound = Limit("TCP stream", tuple(range(ranks)), True, bandwidth, 1 << 22)
    world = WorldSpec(ranks)
    return Setup(world, limits=(alone, bound), bound=bound, cores=cores, ranks_per_host=ranks)


def rows(times: dict[int, float], slower: float = 1.0, n: int = 2) -> list[Row]:
    factor = 2 * (n - 1) / n
    return [
        row([[seconds * slower] * 5], size=size, elements=size // 4, factor=factor, precision=0.05)
        for size, seconds in times.items()
    ]


def judged(made: Sequence[Row], where: Setup, n: int = 2) -> list[Judgement]:
    return [judge(each, made, where, n) for each in made]


@pytest.mark.parametrize("bandwidth", STREAMS)
def test_a_healthy_backend_is_never_unusually_slow(bandwidth: float) -> None:
    kinds = [each.kind for each in judged(rows(GLOO), setup(bandwidth))]
    assert kinds[:3] == ["latency-bound"] * 3
    assert set(kinds[3:]) <= {"latency-bound", "below the limit", "close to the limit"}


@pytest.mark.parametrize("bandwidth", STREAMS)
def test_one_that_takes_five_times_as_long_is_unusually_slow(bandwidth: float) -> None:
    found = judged(rows(GLOO, 5), setup(bandwidth))
    ordinary = [each for each in found if each.kind != "unusually slow"]
    assert len(ordinary) <= STREAMS[bandwidth], ordinary
    assert all("distdemo doctor" in each.hint for each in found if each not in ordinary)


def test_the_reason_says_what_the_bytes_alone_would_take() -> None:
    first = judged(rows(GLOO), setup(7e9))[1]
    assert first.kind == "latency-bound"
    assert first.why == (
        "Its bytes would take 146 ns at the limit, not 70 µs: the rest is a fixed cost of messages "
        "(56 µs at the smallest sizes) and of what grows slowly with size."
    )


@pytest.mark.parametrize(
    ("seconds", "end"),
    [
        (60e-6, "of messages (56 µs at the smallest sizes)."),
        (50e-6, "of messages."),
        (100e-6, "(56 µs at the smallest sizes) and of what grows slowly with size."),
    ],
)
def test_of_the_fixed_cost_no_more_is_said_than_the_figures_support(
    seconds: float, end: str
) -> None:
    found = judged(rows({8: 56e-6, 1 << 13: seconds}), setup(7e9))
    assert [each.kind for each in found] == ["latency-bound"] * 2
    assert found[0].why.endswith("not 56 µs: the rest is a fixed cost of messages.")
    assert found[1].why.endswith(end)


def test_share_is_that_of_the_bound() -> None:
    (close,) = judged(rows({1 << 20: 2 * (1 << 20) / 7e9 / 2 / 0.9}), setup(7e9))
    assert close.kind == "close to the limit"
    assert close.share == pytest.approx(0.9)
    assert "90 % of the 7 GB/s of a TCP stream, all ranks at once" in close.why


def test_more_than_the_limit_is_explained() -> None:
    (more,) = judged(rows({1 << 20: (1 << 20) / 14e9}), setup(7e9))
    assert more.kind == "close to the limit"
    assert "200 %" in more.why
    assert "cache" in more.why


def test_more_ranks_than_cores_are_named_with_what_it_costs() -> None:
    found = judged(rows({8: 1e-3, 1 << 20: 4e-3}, n=4), setup(2e9, ranks=4), 4)
    assert [each.kind for each in found] == ["oversubscribed"] * 2
    assert "4 ranks share 2 cores" in found[1].why
    assert "one pair alone would have 4 GB/s" in found[1].why
    assert "at most 2 ranks" in found[1].hint


def test_a_median_that_others_spoil_is_not_the_backends() -> None:
    """Half of the iterations waited for a core; the others show what the backend does."""
    made = rows(GLOO)[:-3]
    loaded = row(
        [[0.2e-3] * 4 + [4e-3] * 6], size=1 << 20, elements=1 << 18, factor=1.0, precision=0.05
    )
    found = judge(loaded, [*made, loaded], setup(7e9), 2)
    assert found.kind == "below the limit"
    assert "fastest tenth takes 200 µs" in found.why
    assert "something else takes the cores" in found.why


def test_a_copy_within_a_gpu_makes_nothing_unusually_slow() -> None:
    """PCIe, a network: far below it, and quite in order."""
    world = WorldSpec(2, "nccl", "cuda")
    bound = Limit("device copy", (0, 1), True, 1.4e12, 1 << 26)
    where = Setup(world, limits=(bound,), bound=bound, cores=16, ranks_per_host=2)
    times = {8: 15e-6, 1 << 20: 90e-6, 1 << 26: 5e-3}
    kinds = [each.kind for each in judged(rows(times), where)]
    assert kinds == ["latency-bound", "below the limit", "below the limit"]
    last = judged(rows(times), where)[-1]
    assert "of a device copy" in last.why
    assert "no link between two GPUs is as fast" in last.why


def test_gpus_that_outdo_a_stream_are_explained() -> None:
    where = replace(setup(1e9), world=WorldSpec(2, "nccl", "cuda"))
    (found,) = judged(rows({1 << 26: 5e-3}), where)
    assert found.kind == "close to the limit"
    assert "other ways than TCP" in found.why


def test_without_small_sizes_nothing_is_called_latency_bound() -> None:
    kinds = {each.kind for each in judged(rows({1 << 16: 77e-6}), setup(7e9))}
    assert kinds == {"below the limit"}


def test_without_a_latency_the_smallest_sizes_tell_what_is_usual() -> None:
    times = {8: 20e-6, 1 << 16: 21e-6, 1 << 18: 300e-6}
    kinds = [each.kind for each in judged(rows(times), setup(1e11, latency=None))]
    assert kinds == ["latency-bound", "latency-bound", "unusually slow"]


@pytest.mark.parametrize(
    ("size", "factor", "n", "words"),
    [(1024, 0.0, 1, "single rank"), (0, 0.0, 2, "moves no bytes")],
)
def test_where_no_bytes_travel_there_is_nothing_to_judge(
    size: int, factor: float, n: int, words: str
) -> None:
    one = row([[1e-4]], size=size, elements=size // 4, factor=factor, precision=0.05)
    found = judge(one, [one], setup(), n)
    assert (found.kind, found.share) == ("", None)
    assert words in found.why


def test_without_limits_only_too_many_ranks_are_told() -> None:
    made = rows({8: 1e-4})
    nothing = Setup(WorldSpec(2), cores=2, ranks_per_host=2)
    assert judge(made[0], made, nothing, 2).kind == ""
    crowded = Setup(WorldSpec(4), cores=2, ranks_per_host=4)
    assert judge(made[0], made, crowded, 4).kind == "oversubscribed"
