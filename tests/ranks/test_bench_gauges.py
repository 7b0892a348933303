"""Looking at the machine itself while it is measured, by real ranks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from benches import series, spec

from distdemo.bench import align, gauges, page
from distdemo.bench.conductor import measure
from distdemo.bench.environment import cores
from distdemo.bench.gauges import MOMENTS
from distdemo.bench.plan import SPREAD_OVER
from distdemo.bench.yardsticks import ARITHMETIC, COPY, CORE_TO_CORE
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec


@pytest.mark.parametrize("once", [False, True])
def test_every_launch_that_times_has_looked_at_the_machine_to_its_end(once):
    report = measure(spec(series(sizes=(8, 64, 512))), run_world, once=once)
    assert report.ok, report.failure
    found = {each.kind: each.times for each in report.setups["gloo"].gauges}
    kinds = (CORE_TO_CORE, ARITHMETIC, COPY) if cores().effective >= 2 else (ARITHMETIC, COPY)
    assert tuple(found) == kinds
    for times in found.values():
        assert [len(launch) for launch in times] == [MOMENTS + 1] * SPREAD_OVER
        assert all(0 < time < 1 for launch in times for time in launch)


def look_twice(rank, few=()):
    """Some ranks know of fewer cores than there are ranks."""
    known = SimpleNamespace(effective=1 if rank.rank in few else 64)
    vars(gauges)["cores"] = lambda: known
    watch = gauges.Gauges(rank, align.aligner(rank))
    return [watch.look()[0] is not None for _ in range(2)]


@pytest.mark.parametrize(
    ("few", "seen"), [((), (True, True, False)), ((1,), (False, False, False))]
)
def test_a_word_travels_between_two_who_both_have_a_core(few, seen):
    report = run_world(WorldSpec(3), look_twice, (few,))
    assert report.values == [[each, each] for each in seen]


def look_apart(rank):
    """On another machine, as it were: no memory is shared."""
    page._open = lambda *_: None
    return gauges.Gauges(rank, align.aligner(rank)).look()


def test_ranks_that_share_no_memory_look_at_what_is_theirs():
    report = run_world(WorldSpec(2), look_apart)
    for trip, *others in report.values:
        assert trip is None
        assert all(others)
