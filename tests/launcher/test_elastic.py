from __future__ import annotations

import os
import socket
from datetime import timedelta

import pytest
from helpers import LOOPBACK, tcp_addresses
from torch._C._distributed_c10d import TCPStore

from distdemo.launcher.records import WorldSpec
from distdemo.launcher.rendezvous import HOST, agent, variables


def test_the_variables_are_torchruns():
    told = variables(3, 4, 3, 4711)
    assert {name: told[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT")} == {
        "RANK": "3",
        "LOCAL_RANK": "3",
        "WORLD_SIZE": "4",
        "MASTER_PORT": "4711",
    }
    assert told["MASTER_ADDR"] == HOST
    assert all(isinstance(value, str) for value in told.values())


@pytest.mark.parametrize(("given", "told"), [(None, "1"), ("6", "6")])
def test_threads_of_openmp_are_the_users_choice(given, told, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert variables(0, 2, 0, 1)["OMP_NUM_THREADS"] == told


def test_the_store_is_on_loopback_and_gone_with_the_block():
    with agent(WorldSpec(2)) as held:
        assert set(tcp_addresses(os.getpid(), listening=True)) <= LOOPBACK
        held.serve()
        port = held.rendezvous.port
        assert set(tcp_addresses(os.getpid(), listening=True)) <= LOOPBACK
        patience = timedelta(seconds=10)
        one = TCPStore(HOST, port, None, False, timeout=patience, wait_for_workers=False)
        one.set("key", "value")
        assert one.get("key") == b"value"
        del one
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port), timeout=5).close()


def test_a_store_that_was_never_served_is_closed_too():
    with agent(WorldSpec(2)) as held:
        port = held.rendezvous.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port), timeout=5).close()
