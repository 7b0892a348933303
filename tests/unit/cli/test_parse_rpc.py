from __future__ import annotations

from typing import Any

import pytest

from distdemo.cli.legacy_options import ALL, RPC
from distdemo.errors import UsageError
from distdemo.rpc import parse_rpc
from distdemo.rpc.records import RpcSpec


def flags(**given: Any) -> dict[str, Any]:
    assert set(given) <= set(RPC)
    return {name: ALL[name][1] for name in RPC} | given


def parsed(**given: Any) -> parse_rpc.RpcRequest:
    return parse_rpc.parse_rpc(flags(**given))


def test_by_default_two_workers_make_a_short_training() -> None:
    request = parsed()
    assert request.world.world_size == 2
    assert request.world.backend == "gloo"
    assert request.world.device == "cpu"
    assert request.world.capture
    assert request.spec == RpcSpec()
    assert request.seat is None


def test_what_is_given_is_taken() -> None:
    request = parsed(workers="5", rpc_steps="7", rpc_rate="1e-2", rpc_seed="0", quiet=True)
    assert request.world.world_size == 5
    assert request.spec == RpcSpec(7, 0.01, 0)
    assert request.view.quiet


@pytest.mark.parametrize(
    ("given", "timeout", "patience"),
    [
        ({}, 31.0, 10.0),
        ({"rpc_steps": "10000"}, 530.0, 10.0),
        ({"rpc_timeout": "300"}, 300.0, 30.0),
        ({"rpc_timeout": "60"}, 60.0, 20.0),
        ({"rpc_timeout": "5"}, 5.0, 5.0),
        ({"rpc_timeout": "12s", "rpc_steps": "10000"}, 12.0, 10.0),
        ({"start_method": "spawn", "workers": "4"}, 31.0, 16.0),
        ({"start_method": "spawn", "workers": "20"}, 41.0, 40.0),
    ],
)
def test_a_worker_that_hangs_is_found_before_time_is_up(
    given: dict[str, str], timeout: float, patience: float
) -> None:
    request = parsed(**given)
    assert request.world.deadline == pytest.approx(timeout)
    assert request.world.stall == pytest.approx(patience)
    assert request.call_patience > request.world.deadline


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"workers": "1"}, "--world-size 1 is too small: 2 at least."),
        ({"workers": "25"}, "--world-size 25: 24 workers at most."),
        ({"workers": "two"}, "--world-size two: that is no whole number."),
        ({"rpc_steps": "0"}, "--steps 0 is out of range."),
        ({"rpc_steps": "1000001"}, "--steps 1000001 is out of range."),
        ({"rpc_steps": "many"}, "--steps many: that is no whole number."),
        ({"rpc_rate": "0"}, "--lr 0: that is no learning rate."),
        ({"rpc_rate": "inf"}, "--lr inf: that is no learning rate."),
        ({"rpc_rate": "nan"}, "--lr nan: that is no learning rate."),
        ({"rpc_rate": "fast"}, "--lr fast: that is no learning rate."),
        ({"rpc_seed": "-1"}, "--seed -1 can't be used."),
        ({"rpc_seed": str(2**62 + 1)}, "--seed 4611686018427387905 can't be used."),
        ({"rpc_seed": "x"}, "--seed x: that is no whole number."),
        ({"rpc_timeout": "0"}, "--timeout 0: that is no positive number of seconds."),
        ({"start_method": "clone"}, "There is no start method 'clone'."),
        ({"format": "xml"}, "There is no format 'xml'."),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_hint(given: dict[str, str], what: str) -> None:
    with pytest.raises(UsageError) as error:
        parsed(**given)
    assert error.value.what == what
    assert error.value.why
    assert error.value.hint


def test_a_seed_goes_as_far_as_that_of_train() -> None:
    assert parsed(rpc_seed=str(2**62)).spec.seed == 2**62


def test_more_workers_than_open_files_allow_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_rpc, "most_files", lambda: 600)
    assert parsed(workers="8").world.world_size == 8
    with pytest.raises(UsageError, match="600 here") as error:
        parsed(workers="9")
    assert "--world-size 8" in error.value.hint


def test_there_is_no_option_that_would_be_ignored() -> None:
    assert not {"backend", "device", "dtype", "shape", "seed", "world_size", "timeout"} & set(RPC)
