from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdemo.launcher.joined.seat import Seat


def nodes(world_size: int, nodes: int, node: int = 0) -> Seat:
    """A terminal's seat."""
    return Seat("terminals", 0, world_size, 0, 0, node, nodes=nodes)


@pytest.mark.parametrize(
    ("size", "count", "shares"),
    [
        (4, 2, [range(2), range(2, 4)]),
        (3, 2, [range(2), range(2, 3)]),
        (5, 3, [range(2), range(2, 4), range(4, 5)]),
        (2, 2, [range(1), range(1, 2)]),
        (3, 1, [range(3)]),
    ],
)
def test_nodes_share_the_ranks_and_the_first_ones_have_one_more(
    size: int, count: int, shares: list[range]
) -> None:
    seat = nodes(size, count)
    assert [seat.ranks_of(site) for site in range(seat.sites)] == shares


@given(st.integers(1, 60), st.data())
def test_every_rank_is_on_one_node_and_they_lie_in_order(size: int, data: st.DataObject) -> None:
    seat = nodes(size, data.draw(st.integers(1, size)))
    shares = [seat.ranks_of(site) for site in range(seat.sites)]
    assert [rank for share in shares for rank in share] == list(range(size))
    assert len({len(share) for share in shares}) <= 2


def test_under_an_engine_each_rank_is_a_site_of_its_own() -> None:
    seat = Seat("torchrun", 2, 4, 0, 2, 1)
    assert (seat.site, seat.sites) == (2, 4)
    assert [seat.ranks_of(site) for site in range(4)] == [range(n, n + 1) for n in range(4)]


def test_a_terminal_s_site_is_its_node() -> None:
    seat = nodes(5, 3, node=2)
    assert (seat.site, seat.sites) == (2, 3)
