from __future__ import annotations

import sys
import threading

import pytest
import torch

from distdemo.errors import UsageError
from distdemo.launcher import start_method
from distdemo.launcher.start_method import METHODS, choose

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")


@pytest.fixture
def safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may be forked, whatever this one has done."""
    monkeypatch.setattr(start_method, "fork_hazard", lambda: None)


@on_linux
@pytest.mark.usefixtures("safe")
def test_the_fastest_safe_one_is_fork() -> None:
    assert choose("auto", "cpu").name == "fork"


@on_linux
def test_a_process_that_must_not_be_forked_gets_a_forkserver_and_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start_method, "fork_hazard", lambda: "this process has 9 threads")
    method = choose("auto", "cpu")
    assert method.name == "forkserver"
    assert "9 threads" in method.reason


@on_linux
def test_a_thread_of_the_program_s_own_is_such_a_reason() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    method = choose("auto", "cpu")
    done.set()
    thread.join()
    assert method.name == "forkserver"
    assert "threads, so forking it is not safe" in method.reason
    assert choose("auto", "cpu").name == "fork"


@on_linux
@pytest.mark.usefixtures("safe")
def test_ranks_on_gpus_are_forked_only_where_nobody_can_have_used_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start_method, "driver_loaded", lambda: False)
    assert choose("auto", "cuda").name == "fork"
    for told in (True, None):  # loaded, or the system does not tell
        monkeypatch.setattr(start_method, "driver_loaded", lambda told=told: told)
        method = choose("auto", "cuda")
        assert method.name == "forkserver"
        assert "CUDA driver" in method.reason
        assert choose("auto", "cpu").name == "fork"


@on_linux
def test_a_fork_of_ranks_on_gpus_is_refused_once_the_driver_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start_method, "driver_loaded", lambda: True)
    with pytest.raises(UsageError, match="does not survive a fork"):
        choose("fork", "cuda")
    assert choose("fork", "cpu").name == "fork"


@on_linux
def test_the_driver_is_noticed_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start_method.driver_loaded() is False
    monkeypatch.setattr(start_method, "DRIVER", "libc.so")  # a library that is certainly there
    assert start_method.driver_loaded() is True


@pytest.mark.usefixtures("safe")
@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_elsewhere_than_on_linux_it_is_spawn(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    method = choose("auto", "cpu")
    assert method.name == "spawn"
    assert platform in method.reason


@on_linux
@pytest.mark.parametrize("wanted", [name for name in METHODS if name != "auto"])
def test_a_wish_is_granted(wanted: str) -> None:
    method = choose(wanted, "cpu")
    assert method.name == wanted
    assert method.reason


@pytest.mark.parametrize("wanted", ["thread", "", "FORK"])
def test_an_unknown_one_is_refused_with_those_that_exist(wanted: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose(wanted, "cpu")
    assert repr(wanted) in caught.value.what
    assert "spawn" in caught.value.why
    assert caught.value.hint


@on_linux
def test_fork_is_refused_after_cuda_was_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(UsageError, match="CUDA"):
        choose("fork", "cpu")
    assert choose("auto", "cpu").name == "forkserver"
    assert choose("spawn", "cpu").name == "spawn"
