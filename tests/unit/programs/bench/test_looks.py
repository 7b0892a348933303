"""When the machine is looked at, and what is made of what the ranks saw."""

from __future__ import annotations

from distdemo.bench.gauges import MOMENTS, moments
from distdemo.bench.looks import GaugeLog, slowest
from distdemo.bench.plan import Visit
from distdemo.bench.samples import Looks
from distdemo.bench.yardsticks import Gauge


def visits(*launches: int) -> list[Visit]:
    return [Visit(0, place, launch, 1, 0) for place, launch in enumerate(launches)]


def test_each_launch_is_looked_at_from_its_beginning_on():
    assert moments(visits(*[1] * 12)) == {0, 4, 8}
    assert moments(visits(1)) == {0}
    assert moments(visits(0, 0, *[1] * 6, *[2] * 6)) == {2, 4, 6, 8, 10, 12}
    assert len(moments(visits(*[7] * 100))) == MOMENTS


def test_the_launch_that_verifies_is_not_looked_at():
    assert moments(visits(0, 0, 0)) == frozenset()
    assert moments([]) == frozenset()


def test_the_slowest_rank_of_a_moment_counts():
    one, other = [(1.0, 5.0, 2.0), (3.0, 5.0, 2.0)], [(2.0, 4.0, 2.5), (1.0, 6.0, 1.5)]
    assert slowest([one, other]) == ((2.0, 3.0), (5.0, 6.0), (2.5, 2.0))
    lonely = [(None, 9.0, 9.0), (None, 9.0, 9.0)]
    assert slowest([one, lonely])[0] == (1.0, 3.0), "the last of an odd number has no neighbour"
    assert slowest([lonely])[0] == ()


def test_a_launch_that_was_not_seen_to_its_end_leaves_its_place_empty():
    log = GaugeLog(2)
    assert log.gauges() == ()
    for launch, ranks in ((1, (0, 1)), (2, (1,)), (3, (1, 0))):
        for rank in ranks:
            log.add(rank, Looks(launch, ((None, float(launch), 10.0 * rank + 1),)))
    assert log.gauges() == (
        Gauge("arithmetic", ((1.0,), (), (3.0,))),
        Gauge("copy", ((11.0,), (), (11.0,))),
    )
