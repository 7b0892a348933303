"""bench links: slow links, views, and real ranks that are slow, wrong or dead."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch.distributed as dist
from golden import golden

from distdemo.bench import links
from distdemo.bench.judge import judge_links
from distdemo.bench.links import Endpoint, measure_links
from distdemo.bench.records import Link, LinksReport, LinksSpec
from distdemo.bench.view import links_view
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldReport, WorldSpec

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

USUAL_S = 1e-3  # of every round trip: a busy machine would make other links slow, too
LAG_S = 100.0  # of one pair's
Slow = Callable[[int, int], float]
"""Function that returns the slowdown of the link from one rank to another."""


# -------------------------------------------------------------------------------- slow links


def made(size: int, bandwidth: Slow = lambda *_: 1.0, latency: Slow = lambda *_: 1.0) -> list[Link]:
    """Return all links of a world: 20 µs and 5 GB/s, multiplied by the slowdowns."""
    noise = random.Random(size)
    return [
        Link(
            src,
            dst,
            (20e-6 + 2e-6 * noise.random()) * latency(src, dst),
            5e9 / bandwidth(src, dst),
        )
        for src, dst in permutations(range(size), 2)
    ]


def of_pair(one: int, other: int, times: float) -> Slow:
    return lambda src, dst: times if {src, dst} == {one, other} else 1.0


def of_rank(rank: int, times: float) -> Slow:
    return lambda src, dst: times if rank in (src, dst) else 1.0


def across(src: int, dst: int) -> float:
    return 50.0 if (src < 2) != (dst < 2) else 1.0


HOSTS = ("a", "a", "b", "b")
CASES: dict[str, tuple[int, Slow, tuple[str, ...], list[tuple[int, int]], tuple[int, ...]]] = {
    "nothing": (4, lambda *_: 1.0, (), [], ()),
    "a pair of two": (2, lambda src, _: 3.0 if src else 1.0, (), [(1, 0)], ()),
    "a pair of three": (3, of_pair(1, 2, 10), (), [(1, 2), (2, 1)], ()),
    "a rank that sends slowly": (4, lambda src, _: 10.0 if src == 3 else 1.0, (), [], (3,)),
    "a slow rank": (4, of_rank(3, 10), (), [], (3,)),
    "two hosts": (4, across, HOSTS, [], ()),
    "alone on a host": (4, of_rank(3, 30), ("a", "a", "a", "b"), [], ()),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("figure", ["latency", "bandwidth"])
def test_slow_links_and_slow_ranks_are_distinguished(name: str, figure: str) -> None:
    size, slow, hosts, expected, slow_ranks = CASES[name]
    judged, suspects = judge_links(made(size, **{figure: slow}), hosts)
    assert [(link.src, link.dst) for link in judged if link.slow] == expected
    assert {reason for link in judged for reason in link.slow} <= {figure}
    assert suspects == slow_ranks


# -------------------------------------------------------------------------------------- views


def report(size: int, **slow: Slow) -> LinksReport:
    known = {"elapsed_s": 8.4, "versions": {"distdemo": "1.2.3"}}
    return LinksReport(LinksSpec(size, "gloo", "cpu"), *judge_links(made(size, **slow)), **known)  # type: ignore[arg-type]  # mypy joins the values' types


REPORTS = {
    "slow_pair": report(4, bandwidth=of_pair(1, 2, 10)),
    "many": report(20, bandwidth=of_rank(17, 6)),
    "wrong": replace(report(3), links=(*report(3).links[:3], Link(2, 0, 1e-5, 1e9, wrong=2))),
}


@pytest.mark.parametrize("name", REPORTS)
def test_the_report(name: str) -> None:
    file = Path(__file__).parent / "golden" / f"links_{name}.txt"
    golden(file, partial(links_view, REPORTS[name]))


# --------------------------------------------------------------------------------- real ranks


def measured(
    size: int,
    alter: Callable[[int], None] = lambda _: None,
    interrupt: bool = False,
    stall: float = 20.0,
    **options: Any,
) -> LinksReport:
    """Measure with real ranks, each patched in its own process first."""

    def start(
        world: WorldSpec, target: Any, args: Any, *, on_message: Any, **_: Any
    ) -> WorldReport:
        def work(rank: Rank, *given: Any) -> Any:
            alter(rank.rank)
            return target(rank, *given)

        def interrupted(rank: int, message: Any) -> None:
            on_message(rank, message)
            raise KeyboardInterrupt

        return run_world(world, work, args, on_message=interrupted if interrupt else on_message)

    spec = LinksSpec(size, "gloo", "cpu", **{"large_bytes": 1 << 12, **options})
    world = WorldSpec(size, deadline=100.0, start_method="fork", stall=stall)
    return measure_links(spec, world, start)


def ends(report: LinksReport) -> list[tuple[int, int]]:
    return [(link.src, link.dst) for link in report.links]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "BUDGET_S", 0.1)
    monkeypatch.setattr(links, "ROUNDS", 2)


@pytest.mark.processes
def test_every_pair_is_measured_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    result = measured(3, large_bytes=(1 << 20) + 7)
    assert result.ok, result.world
    assert ends(result) == list(permutations(range(3), 2))
    assert all(0 < link.latency_s < 1 and link.bandwidth_bytes_per_s > 0 for link in result.links)
    monkeypatch.setattr(links, "shared_words", lambda *_: None)  # as on several hosts
    assert measured(2, small_bytes=1).ok, "turns through the store"


@pytest.mark.processes
def test_a_slow_pair_is_named_and_wrong_bytes_are_counted() -> None:
    def alter(me: int) -> None:
        round_trip_s = Endpoint._round_trip_s
        recv = dist.recv

        def late(endpoint: Any, dst: int, kind: int, window: int) -> float:
            round_trip_s(endpoint, dst, kind, window)
            return LAG_S if {me, dst} == {1, 2} else USUAL_S

        def wrong(tensor: Any, src: int) -> Any:
            received = recv(tensor, src)
            if (src, me) == (0, 1) and tensor.numel() > 100:
                tensor[77] += 1
            return received

        Endpoint._round_trip_s = late  # type: ignore[method-assign, assignment]
        dist.recv = wrong  # type: ignore[assignment]  # equivalent for this program

    result = measured(4, alter)
    assert (result.ok, result.world, result.slow_ranks) == (False, None, ())
    assert {(link.src, link.dst) for link in result.slow} == {(1, 2), (2, 1)}
    wrong = {(link.src, link.dst): link.wrong for link in result.links if link.wrong}
    assert wrong == {(0, 1): 2}


def before_recv(act: Callable[[int, int], object]) -> Callable[[int], None]:
    """Return a patch that calls ``act`` with both ranks before each recv."""

    def alter(me: int) -> None:
        recv = dist.recv

        def call(tensor: Any, src: int) -> Any:
            act(me, src)
            return recv(tensor, src)

        dist.recv = call  # type: ignore[assignment]  # equivalent for this program

    return alter


def die(me: int, src: int) -> None:
    if (me, src) == (2, 1):  # at rank 1's first message, when rank 0 is done
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.processes
def test_a_dead_rank_a_signal_or_the_stall_limit_keeps_measured_links() -> None:
    result = measured(3, before_recv(die))
    assert ends(result) == [(0, 1), (0, 2), (1, 0), (2, 0)]
    assert result.world is not None
    assert result.world.verdict is not None
    assert result.world.verdict.ranks == (2,)
    result = measured(3, interrupt=True)
    assert (result.interrupted, result.ok, ends(result)) == (True, False, [(0, 1)])
    hang = before_recv(lambda me, _: threading.Event().wait(60 * (me == 1)))
    result = measured(2, hang, stall=0.3)
    assert (result.ok, result.world is None, result.links) == (False, False, ())


# ------------------------------------------------------------------------------- command line

REFUSED = {
    "all-reduce": "bench links",
    "-n 1": "two ends",
    "--sizes 8": "--sizes 8,1M",
    "--sizes 8,1T": "memory",
}


@pytest.mark.usefixtures("no_rank_starts")
def test_usage_errors(command: Any) -> None:
    for line, words in REFUSED.items():
        code, out, err = command("bench", "links", *line.split())
        assert (code, out) == (2, ""), line
        assert words in " ".join(err.split()), line
