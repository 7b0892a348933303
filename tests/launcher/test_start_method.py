from __future__ import annotations

import threading

import pytest
import torch
from helpers import wait_until

from distdemo.errors import UsageError
from distdemo.launcher import start_method, torch_import
from distdemo.launcher.start_method import choose


@pytest.fixture
def safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process look safe to fork."""
    monkeypatch.setattr(torch_import, "fork_hazard", lambda: None)


@pytest.mark.usefixtures("safe")
def test_ranks_on_gpus_are_forked_only_where_nobody_can_have_used_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start_method, "driver_loaded", lambda: False)
    assert choose("auto", "cuda").name == choose("auto", "cpu").name == "fork"
    monkeypatch.setattr(start_method, "driver_loaded", lambda: True)
    method = choose("auto", "cuda")
    assert method.name == "forkserver"
    assert "CUDA driver" in method.reason
    assert choose("auto", "cpu").name == "fork"
    with pytest.raises(UsageError, match="does not survive a fork"):
        choose("fork", "cuda")
    for wanted in ("fork", "forkserver", "spawn"):
        assert choose(wanted, "cpu").name == wanted
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(UsageError, match="CUDA"):
        choose("fork", "cpu")


def test_a_thread_of_the_program_s_own_is_a_reason_for_a_forkserver() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    method = choose("auto", "cpu")
    done.set()
    thread.join()
    assert method.name == "forkserver"
    assert "threads, so forking it is not safe" in method.reason
    # The kernel may list a thread slightly longer than Python.
    assert wait_until(lambda: choose("auto", "cpu").name == "fork")


def test_the_driver_is_noticed_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start_method.driver_loaded() is False
    monkeypatch.setattr(start_method, "DRIVER", "libc.so")  # a library that is always loaded
    assert start_method.driver_loaded() is True
