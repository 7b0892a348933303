from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from distdemo.errors import UsageError
from distdemo.launcher.joined import interfaces
from distdemo.launcher.joined.meeting import Meeting
from distdemo.launcher.joined.place import interface_for, meeting_for, prefix_of
from distdemo.launcher.joined.seat import Seat


def seat(**more: Any) -> Seat:
    """Rank 0 of four, two on each of two hosts."""
    fields: dict[str, Any] = {
        "engine": "environment",
        "rank": 0,
        "world_size": 4,
        "local_rank": 0,
        "local_size": 2,
        "node": 0,
        "master": "127.0.0.1",
        "port": 0,
        "job": "job.0",
    }
    return Seat(**fields | more)


@contextmanager
def listening(meeting: Meeting | None) -> Iterator[tuple[str, int]]:
    """The address on which this meeting's socket listens."""
    assert meeting is not None
    assert meeting.listening is not None
    with socket.socket(fileno=meeting.listening) as held:
        assert held.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        yield held.getsockname()[:2]


def test_keys_carry_the_start_that_they_belong_to() -> None:
    assert prefix_of(seat()) == "distdemo/job.0"


def test_the_first_site_listens_on_the_address_that_was_named_and_nowhere_else() -> None:
    meeting = meeting_for(seat(master="127.0.0.2"))
    with listening(meeting) as (host, port):
        assert host == "127.0.0.2"
        assert meeting is not None
        assert (meeting.host, meeting.port) == ("127.0.0.2", port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 1)


def test_the_others_go_where_the_first_one_listens() -> None:
    assert meeting_for(seat(rank=2, port=29500)) == Meeting("127.0.0.1", 29500, "distdemo/job.0")


@pytest.mark.parametrize("rank", [0, 2])
def test_nobody_listens_where_the_engine_does(rank: int) -> None:
    meeting = meeting_for(seat(rank=rank, hosted=True, port=29500))
    assert meeting == Meeting("127.0.0.1", 29500, "distdemo/job.0")


def test_nobody_knows_where_to_meet_without_a_master() -> None:
    assert meeting_for(seat(master="")) is None
    assert interface_for(seat(master="")) is None


def test_a_taken_port_is_refused() -> None:
    with listening(meeting_for(seat())) as (_, port), pytest.raises(UsageError, match="taken"):
        meeting_for(seat(port=port))


def test_an_address_of_another_machine_is_refused_by_the_first_site_alone() -> None:
    with pytest.raises(UsageError, match="does not have the address"):
        meeting_for(seat(master="192.0.2.1", port=29500))
    assert meeting_for(seat(master="192.0.2.1", port=29500, rank=3)) is not None


def test_ranks_of_one_host_take_loopback_whatever_the_master_is_called() -> None:
    alone = seat(local_size=4, master=socket.gethostname())
    assert interface_for(alone) == ""
    with listening(meeting_for(alone)):
        pass


def test_a_master_on_loopback_means_that_all_are_here() -> None:
    assert interface_for(seat(master="localhost", port=29500)) == ""


def test_ranks_of_several_hosts_take_the_interface_that_leads_to_the_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = interfaces.address_towards("127.0.0.1", 1)  # as far as a machine without a cable goes
    monkeypatch.setattr(interfaces, "address_towards", lambda host, port: own)
    monkeypatch.setattr(interfaces, "is_loopback", lambda host: False)
    assert interface_for(seat(master="10.0.0.9", port=29500)) == interfaces.interface_of(own)


def test_an_own_name_for_loopback_is_taken_for_the_address_that_others_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interfaces, "name_for_others", lambda host: "127.0.0.3")
    with listening(meeting_for(seat(master="this-machine"))) as (host, _):
        assert host == "127.0.0.3"
    fds = set(os.listdir("/proc/self/fd"))
    assert meeting_for(seat(master="this-machine", rank=1, port=5)) == Meeting(
        "127.0.0.3", 5, "distdemo/job.0"
    )
    assert len(os.listdir("/proc/self/fd")) == len(fds)
