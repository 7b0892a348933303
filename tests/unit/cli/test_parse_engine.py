from __future__ import annotations

from typing import Any

import pytest

from distdemo.cli.parse_engine import (
    PORT,
    check_input,
    parse_seat,
    placed,
    ranks_here,
    size_of_world,
)
from distdemo.errors import UsageError
from distdemo.launcher.joined.placement import Placement

FLAGS: dict[str, Any] = {"launcher": "auto", "nnodes": None, "node_rank": None, "master": None}
WORLD = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
TORCHRUN = {**WORLD, "TORCHELASTIC_RUN_ID": "none", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3"}


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever starts the tests, no engine starts what they ask for."""
    monkeypatch.setattr("os.environ", {})


def engine(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> Placement:
    """The seat that these variables give."""
    monkeypatch.setattr("os.environ", variables)
    seat = parse_seat(FLAGS)
    assert seat is not None
    return seat


def node(number: int = 0, of: int = 2, master: str = "10.0.0.1", **more: Any) -> Placement:
    """The seat of a terminal."""
    flags = {"nnodes": str(of), "node_rank": str(number), "master": master, **more}
    seat = parse_seat(FLAGS | flags)
    assert seat is not None
    return seat


def refused(**flags: Any) -> UsageError:
    """The refusal of these flags: three lines, none of them empty."""
    with pytest.raises(UsageError) as info:
        parse_seat(FLAGS | flags)
    assert all((info.value.what, info.value.why, info.value.hint))
    return info.value


# ---------------------------------------------------------------------------------- terminals


def test_without_an_engine_and_without_nodes_the_world_is_our_own() -> None:
    assert parse_seat(FLAGS) is None
    assert parse_seat(FLAGS | {"launcher": "local"}) is None
    assert parse_seat({}) is None


def test_a_terminal_says_which_node_it_is_and_where_the_first_one_is() -> None:
    seat = node(1, 3, "node0:1234")
    assert (seat.engine, seat.node_rank, seat.nnodes) == ("terminals", 1, 3)
    assert (seat.master, seat.port, seat.hosted) == ("node0", 1234, False)
    assert seat.why == "--nnodes 3 --node-rank 1"


def test_without_a_port_it_is_torch_s() -> None:
    assert node(master="node0").port == PORT
    assert node(master="[fe80::1]").master == "fe80::1"


def test_terminals_go_with_local_as_they_start_their_own_ranks() -> None:
    assert node(launcher="local").nodes == 2


def test_terminals_win_over_variables_that_were_left_in_a_shell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    monkeypatch.setattr("os.environ", left)
    assert node().engine == "terminals"


def test_terminals_within_an_engine_s_world_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", TORCHRUN)
    with pytest.raises(UsageError, match="--nnodes, but torchrun has started this process"):
        node()


def test_standard_input_belongs_to_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", TORCHRUN)
    with pytest.raises(UsageError, match="--values - can't be had"):
        check_input(parse_seat({}), {"values": ["-"]})
    check_input(None, {"values": ["-"]})


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"nnodes": "2"}, "--node-rank and --master are missing."),
        ({"node_rank": "0"}, "--nnodes and --master are missing."),
        ({"master": "h"}, "--nnodes and --node-rank are missing."),
        ({"nnodes": "2", "node_rank": "0"}, "--master is missing."),
        ({"node_rank": "0", "master": "h"}, "--nnodes is missing."),
    ],
)
def test_what_is_missing_is_named(given: dict[str, str], missing: str) -> None:
    assert refused(**given).what == missing


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"nnodes": "0"}, "--nnodes 0"),
        ({"nnodes": "-2"}, "--nnodes -2"),
        ({"nnodes": "two"}, "--nnodes two"),
        ({"node_rank": "2"}, "--node-rank 2"),
        ({"node_rank": "-1"}, "--node-rank -1"),
        ({"node_rank": "first"}, "--node-rank first"),
        ({"master": ""}, "'' is no address"),
        ({"master": "10.0.0.1:"}, "'10.0.0.1:' is no address"),
        ({"master": "h:0"}, "--master h:0"),
        ({"launcher": "mpi"}, "--nnodes and --launcher mpi"),
    ],
)
def test_what_can_not_be_is_refused(changed: dict[str, str], what: str) -> None:
    good = {"nnodes": "2", "node_rank": "0", "master": "10.0.0.1:29500"}
    assert what in refused(**good | changed).what


# ---------------------------------------------------------------------------------- the size


@pytest.mark.parametrize(
    ("size", "nodes", "shares"),
    [
        ("4", 2, [2, 2]),
        ("3", 2, [2, 1]),
        ("5", 3, [2, 2, 1]),
        (None, 2, [2, 2]),
        (None, 5, 5 * [1]),
    ],
)
def test_the_ranks_are_split_over_the_nodes(
    size: str | None, nodes: int, shares: list[int]
) -> None:
    first = 0
    for number, share in enumerate(shares):
        seat = node(number, nodes)
        whole = size_of_world(seat, size, default=4)
        mine = placed(seat, whole)
        assert mine is not None
        assert (mine.world_size, mine.rank, mine.ranks_here) == (sum(shares), first, share)
        assert ranks_here(mine, whole) == share
        first += share


def test_fewer_ranks_than_nodes_are_refused() -> None:
    with pytest.raises(UsageError, match="--world-size 2 is too small for 3 nodes"):
        size_of_world(node(of=3), "2", default=4)


def test_the_size_is_the_engine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    seat = engine(monkeypatch, TORCHRUN)
    assert size_of_world(seat, None, default=4) == 3
    assert size_of_world(seat, "3", default=4) == 3
    assert placed(seat, 3) == seat
    assert ranks_here(seat, 3) == 3


def test_another_size_than_the_engine_s_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    seat = engine(monkeypatch, TORCHRUN)
    with pytest.raises(UsageError) as info:
        size_of_world(seat, "4", default=4)
    assert info.value.what == "--world-size 4, but this world has 3 ranks."
    assert "rank 1 of them" in info.value.why
    assert "--launcher local" in info.value.hint


def test_a_world_that_is_too_small_for_the_op_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    seat = engine(monkeypatch, {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1"})
    with pytest.raises(UsageError, match="2 at least") as info:
        size_of_world(seat, None, default=2, smallest=2, why="One can't send to itself.")
    assert info.value.why == "One can't send to itself."


def test_a_host_that_does_not_say_how_many_it_has_holds_the_process_s_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seat = engine(monkeypatch, WORLD)
    assert seat.local_size == 0
    assert ranks_here(seat, 3) == 1
    assert ranks_here(None, 3) == 3


# ------------------------------------------------------------------------------ the launcher


def test_the_launcher_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", TORCHRUN)
    assert parse_seat(FLAGS | {"launcher": "local"}) is None
    for name in ("torchrun", "Environment"):
        seat = parse_seat(FLAGS | {"launcher": name})
        assert seat is not None
        assert seat.engine == name.lower()


def test_a_launcher_that_did_not_start_this_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", TORCHRUN)
    assert "no rank of mpi" in refused(launcher="mpi").what


def test_an_unknown_launcher_is_refused_with_the_nearest() -> None:
    error = refused(launcher="torchrnu")
    assert "'torchrnu'" in error.what
    assert "--launcher torchrun" in error.hint
