from __future__ import annotations

import pytest

from distdemo import backends
from distdemo.bench.figures import rate_text, share_text, time_text, times_text
from distdemo.bench.limits import bound_of, merged, pairs_of
from distdemo.bench.yardsticks import Limit


def limit(kind: str, ranks: tuple[int, ...], bandwidth: float, *, at_once: bool = False) -> Limit:
    return Limit(kind, ranks, at_once, bandwidth, 1 << 22)


def test_neighbours_on_the_ring_are_measured_evenly_chosen_beyond_eight() -> None:
    assert pairs_of(1) == ()
    assert pairs_of(2) == ((0, 1), (1, 0))
    assert pairs_of(3) == ((0, 1), (1, 2), (2, 0))
    assert pairs_of(16) == tuple((first, first + 1) for first in range(0, 16, 2))
    assert len(pairs_of(1000)) == 8
    assert pairs_of(9)[-1] == (7, 8)


def test_what_all_do_at_once_is_as_quick_as_the_slowest() -> None:
    alone = limit("TCP stream", (0, 1), 9e9)
    parts = [
        [alone, limit("TCP stream", (0, 1), 5e9, at_once=True)],
        [limit("TCP stream", (1, 0), 8e9), limit("TCP stream", (0, 1), 4e9, at_once=True)],
    ]
    found = merged(parts)
    assert [each.bandwidth for each in found] == [9e9, 8e9, 4e9]


def test_what_a_rank_could_not_do_is_no_limit_of_all() -> None:
    found = merged([[limit("TCP stream", (0, 1), 5e9, at_once=True)], []])
    assert found == ()


LIMITS = (
    limit("memory copy", (0,), 20e9),
    limit("memory copy", (0, 1), 11e9, at_once=True),
    limit("TCP stream", (0, 1), 9e9),
    limit("TCP stream", (0, 1), 5e9, at_once=True),
    limit("shared memory", (0, 1), 30e9),
    limit("shared memory", (1, 0), 28e9),
)


@pytest.mark.parametrize(
    ("transport", "bandwidth"),
    [("TCP stream", 5e9), ("shared memory", 28e9), ("memory copy", 11e9)],
)
def test_the_bound_is_that_of_all_at_once_or_of_the_slowest_pair(
    transport: str, bandwidth: float
) -> None:
    found = bound_of(LIMITS, transport)
    assert found is not None
    assert (found.kind, found.bandwidth) == (transport, bandwidth)


def test_ranks_without_shared_memory_are_held_against_a_stream() -> None:
    found = bound_of(LIMITS[:4], "shared memory")
    assert found == LIMITS[3]
    assert bound_of((), "TCP stream") is None


def test_gpus_of_several_hosts_are_held_against_a_stream_those_of_one_against_their_memory() -> (
    None
):
    within = limit("device copy", (0, 1), 1e12, at_once=True)
    assert bound_of((*LIMITS, within), "device copy") == within
    assert bound_of((*LIMITS[:4], within), "device copy") == LIMITS[3]
    assert bound_of((LIMITS[0], within), "device copy") == within  # no stream was to be had
    assert bound_of(LIMITS, "device copy") is None


def test_every_backend_names_something_that_is_measured() -> None:
    kinds = {"TCP stream", "shared memory", "device copy"}
    assert {backend.transport for backend in backends.REGISTRY.values()} <= kinds


def test_figures_in_words() -> None:
    assert time_text(2.5e-7) == "250 ns"
    assert time_text(12.34e-6) == "12.3 µs"
    assert time_text(4e-3) == "4 ms"
    assert rate_text(3.456e9) == "3.46 GB/s"
    assert rate_text(999.9e6) == "1 GB/s"
    assert share_text(0.434) == "43 %"
    assert share_text(0.096) == "10 %"
    assert share_text(0.0003) == "0.03 %"
    assert times_text(2.44) == "2.4 times"
    assert times_text(18.2) == "18 times"
