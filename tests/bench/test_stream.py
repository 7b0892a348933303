"""TCP streams between real ranks, without torch.distributed."""

from __future__ import annotations

import os
import socket
import threading

import pytest
from benches import world
from helpers import tcp_addresses

from distdemo.bench import stream
from distdemo.bench.stream import stream_limit
from distdemo.launcher.local import run_world

pytestmark = pytest.mark.processes


def measured(rank):
    """Return the limit with the sockets and threads that measuring leaves behind."""
    sockets = tcp_addresses(os.getpid())
    limit = stream_limit(rank)
    return limit, set(tcp_addresses(os.getpid())) - set(sockets), threading.active_count()


def stranger(rank):
    """Measure while a stranger, instead of rank 0, connects to rank 1."""
    connect = socket.create_connection

    def without_token(*where):
        connection = connect(*where)
        connection.sendall(bytes(stream.TOKEN_BYTES))
        return connection

    if rank.rank == 0:
        socket.create_connection = without_token
    return stream_limit(rank)


def test_streams_are_measured_or_left_out_and_nothing_is_left_behind(monkeypatch):
    monkeypatch.setattr(stream, "SECONDS", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(stream, "PEER_TIMEOUT_S", 60.0)  # a busy machine loses no neighbour
        reports = run_world(world(3), measured).values
    for limit, sockets, threads in reports:
        assert 1e6 < limit.bandwidth_bytes_per_s < 1e13
        assert 0 < limit.latency_s < 1
        assert (sockets, threads) == (set(), 1)
    assert run_world(world(), stranger).values[1] is None
    monkeypatch.setattr(stream, "addresses", dict)
    assert run_world(world(), stream_limit).values == [None, None]
