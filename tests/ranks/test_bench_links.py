"""Links between real ranks: measured, verified, and the slow ones named."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch.distributed as dist
from forked import in_a_child

from distdemo.backends.starting import run_prepared
from distdemo.bench.linking import LinksReport, LinksSpec
from distdemo.bench.links import baton, measure_links, program
from distdemo.bench.old_records import Course
from distdemo.errors import Terminated
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldReport, WorldSpec

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

LAG = 0.005  # seconds: a hundred times what the quickest messages take

Alter = Callable[[int], None]
"""What a rank does to its own torch.distributed before it measures."""


def spec(size: int, backend: str = "gloo", **how: Any) -> LinksSpec:
    world = WorldSpec(size, backend, deadline=20.0, start_method="fork")
    return LinksSpec(world, **{"large": 1 << 16, "budget": 0.3, "rounds": 2, **how})


def altered(how: Alter) -> Callable[..., WorldReport]:
    """Starts worlds whose ranks are altered first."""

    def start(world: WorldSpec, target: Any, args: Any, *, hear: Any) -> WorldReport:
        def work(rank: Rank, *given: Any) -> Any:
            how(rank.rank)
            return target(rank, *given)

        return run_world(world, work, args, hear=hear)

    return start


def ends(report: LinksReport) -> list[tuple[int, int]]:
    return [(link.src, link.dst) for link in report.links]


def test_every_pair_is_measured_both_ways_and_right() -> None:
    seen: list[Course] = []
    report = measure_links(spec(3, iters=5), run_world, seen.append)
    assert report.ok, report.failure
    assert ends(report) == [(src, dst) for src in range(3) for dst in range(3) if src != dst]
    assert all(0 < link.latency < 1 and link.bandwidth > 0 for link in report.links)
    assert report.latency > 0
    assert report.bandwidth > 0
    assert report.start_method == "fork"
    assert seen[0].done == 1 / 12
    assert seen[0].now == "rank 0 to rank 1, round 1 of 2"


def test_eight_ranks_have_all_their_links_measured() -> None:
    report = measure_links(spec(8, iters=1, rounds=1, large=1 << 12), run_world)
    assert report.ok, report.failure
    assert ends(report) == [(src, dst) for src in range(8) for dst in range(8) if src != dst]


def test_without_shared_memory_the_turns_go_through_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(baton, "shared_page", lambda *_: None)  # as on several hosts
    report = measure_links(spec(3, iters=1, rounds=2, large=1 << 12), run_world)
    assert report.ok, report.failure
    assert len(report.links) == 6


def test_a_long_visit_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "SILENT", 0.0)  # every batch is a long one
    heard: list[object] = []

    def start(world: WorldSpec, target: Any, args: Any, *, hear: Any) -> WorldReport:
        def noted(rank: int, value: object) -> None:
            heard.append(value)
            hear(rank, value)

        return run_world(world, target, args, hear=noted)

    report = measure_links(spec(2, iters=50, rounds=1, large=1 << 12), start)
    assert report.ok, report.failure
    batches, windows = 3, 13
    assert heard.count(None) == 2 * (batches + windows)


def test_a_budget_that_cannot_hold_is_named_with_what_would() -> None:
    report = measure_links(spec(3, budget=1e-6, rounds=4), run_world)
    assert report.ok, report.failure
    assert "The 24 visits took" in report.notes[-1]
    assert "--rounds 1 would take" in report.notes[-1]


def test_odd_sizes_travel_too() -> None:
    report = measure_links(spec(2, small=1, large=(1 << 20) + 7, iters=1, rounds=1), run_world)
    assert report.ok, report.failure
    assert len(report.links) == 2


def test_a_single_rank_has_no_links() -> None:
    report = measure_links(spec(1), run_world)
    assert report.ok
    assert report.links == ()


def lagging(is_slow: Callable[[int, int], bool], me: int) -> None:
    """From here on this rank's messages to some others start late."""
    send = dist.send

    def late(tensor: Any, dst: int, *more: Any, **how: Any) -> Any:
        if is_slow(me, dst):
            threading.Event().wait(LAG)
        return send(tensor, dst, *more, **how)

    dist.send = late  # type: ignore[assignment]  # as good as it for this program


def test_a_slow_pair_is_named() -> None:
    start = altered(partial(lagging, lambda src, dst: {src, dst} == {1, 2}))
    report = measure_links(spec(4, iters=8, rounds=3, factor=5.0), start)
    assert report.ok, report.failure  # a slow link is a finding, no failure
    slow = {(link.src, link.dst): link.slow for link in report.slow}
    assert {(1, 2), (2, 1)} <= set(slow)
    assert "latency" in slow[1, 2]
    assert not {1, 2} & set(report.suspects)


def test_a_slow_rank_is_named_and_not_its_links() -> None:
    start = altered(partial(lagging, lambda src, dst: 3 in (src, dst)))
    report = measure_links(spec(4, iters=4, rounds=3, factor=5.0), start)
    assert 3 in report.suspects
    assert not [link for link in report.slow if 3 in (link.src, link.dst)]


def corrupting(me: int) -> None:
    """Rank 1 finds a byte of each large message changed."""
    recv = dist.recv

    def wrong(tensor: Any, src: int) -> Any:
        came = recv(tensor, src)
        if me == 1 and tensor.numel() > 100:
            tensor[77] += 1
        return came

    dist.recv = wrong  # type: ignore[assignment]  # as good as it for this program


def test_wrong_bytes_are_counted_where_they_arrive() -> None:
    report = measure_links(spec(2, iters=3), altered(corrupting))
    assert not report.ok
    assert report.failure is None
    assert [(link.src, link.wrong) for link in report.links] == [(0, 2), (1, 0)]  # two rounds


def dying(me: int) -> None:
    """Rank 2 dies when rank 1 first talks to it, after rank 0 is through."""
    recv = dist.recv

    def last(tensor: Any, src: int) -> Any:
        if me == 2 and src == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return recv(tensor, src)

    dist.recv = last  # type: ignore[assignment]  # as good as it for this program


def test_a_rank_that_dies_leaves_what_was_measured() -> None:
    report = measure_links(spec(3, iters=3), altered(dying))
    assert not report.ok
    assert ends(report) == [(0, 1), (0, 2), (1, 0), (2, 0)]
    assert report.failure is not None
    assert report.failure.verdict is not None
    assert report.failure.verdict.ranks == (2,)
    assert "4 of 6 links were measured." in report.notes


@pytest.mark.parametrize("stop", [KeyboardInterrupt, Terminated])
def test_a_signal_leaves_what_was_measured(stop: type[BaseException]) -> None:
    def interrupt(_: Course) -> None:
        raise stop

    report = measure_links(spec(3, iters=3), run_world, interrupt, engine="torchrun")
    assert report.interrupted
    assert not report.ok
    assert ends(report) == [(0, 1)]
    assert report.start_method == "fork"
    assert report.engine == "torchrun"
    assert report.versions["torch"]
    assert report.environment["host"]


def test_what_was_measured_before_ctrl_c_is_judged_by_the_hosts_of_the_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def moved(me: int) -> None:
        monkeypatch.setattr(socket, "gethostname", lambda: f"host-{me // 2}")

    told: list[str] = []

    def interrupt(course: Course) -> None:
        told.append(course.now)
        raise KeyboardInterrupt

    report = measure_links(spec(4, iters=1), altered(moved), interrupt)
    assert told == ["rank 0 to rank 1, round 1 of 2"]
    assert {host for host in report.hosts if host != "?"} <= {"host-0", "host-1"}
    assert report.hosts[:2] == ("host-0", "host-0") or report.hosts == ()


def hanging(me: int) -> None:
    """Rank 1 never answers rank 0."""
    recv = dist.recv

    def never(tensor: Any, src: int) -> Any:
        if me == 1:
            threading.Event().wait(60)
        return recv(tensor, src)

    dist.recv = never  # type: ignore[assignment]  # as good as it for this program


def test_a_pair_that_hangs_ends_with_the_worlds_patience() -> None:
    asked = spec(3, iters=3)
    asked = replace(asked, world=replace(asked.world, stall=0.5))
    report = measure_links(asked, altered(hanging))
    assert report.failure is not None
    assert report.failure.verdict is not None
    assert report.links == ()


@pytest.mark.mpi
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py and an MPI")
def test_links_over_mpi() -> None:
    def over_mpi() -> None:
        report = measure_links(spec(3, "mpi", iters=3), run_prepared)
        assert report.ok, report.failure
        assert len(report.links) == 6

    in_a_child(over_mpi)
