"""This machine's addresses and names, and sockets that listen on one address."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import pytest

from distdemo.errors import UsageError
from distdemo.joined.interfaces import (
    addresses,
    listening_socket,
    parse_address,
)


@pytest.mark.parametrize("address", ["127.0.0.2", "::1"])
def test_a_socket_listens_on_its_address_and_on_no_other(address: str) -> None:
    with suppress(UsageError), listening_socket(address, 0) as listening:  # IPv6 may be missing
        port = listening.getsockname()[1]
        socket.create_connection((address, port), 10).close()
        for other in ("127.0.0.1", *(a for own in addresses().values() for a in own)):
            if other != address:
                with pytest.raises(OSError, match=r"refused|nvalid|unreachable"):
                    socket.create_connection((other, port), 10)


def test_a_port_can_be_taken_again_at_once_but_not_twice() -> None:
    with listening_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(UsageError, match="in use"):
            listening_socket("127.0.0.1", port)
        with socket.create_connection(("127.0.0.1", port), 10) as there:
            here, _ = listening.accept()
            here.close()  # this side closes first, so its end stays in TIME_WAIT
            assert there.recv(1) == b""
    listening_socket("127.0.0.1", port).close()


def test_an_address_that_is_not_this_machine_s_alone_is_refused() -> None:
    before = os.listdir("/proc/self/fd")
    for address, what in {
        "0.0.0.0": "means every address",  # noqa: S104 - refused
        "::": "means every address",
        "192.0.2.254": "Can't listen on 192.0.2.254",  # a network reserved for examples
    }.items():
        with pytest.raises(UsageError, match=what):
            listening_socket(address, 0)
    assert os.listdir("/proc/self/fd") == before


# -------------------------------------------------------------------------------------- parsing


def test_an_address_is_read_or_refused() -> None:
    for text, expected in {
        "10.0.0.1:29500": ("10.0.0.1", 29500),
        "node-1.example.org:65535": ("node-1.example.org", 65535),
        "gpu_3": ("gpu_3", None),
        "[fe80::1%eth0]:29500": ("fe80::1%eth0", 29500),
        "[::1]": ("::1", None),
        "fe80::1%eth0": ("fe80::1%eth0", None),
        " 10.0.0.1:0 ": ("10.0.0.1", 0),
    }.items():
        assert parse_address(text) == expected
    for text in (
        *("", ":29500", "10.0.0.1:", "10.0.0.1:http", "10.0.0.1:-1", "10.0.0.1:1:2", "a b:1"),
        *("http://node1:1", "node1/path", "[node1]:1", "[10.0.0.1]:1", "[::1", "::1]:1", "[]:1"),
        *("[[::1]]:1", "-n:1", "node1:٣", "nödel:1", "10.0.0.1:999999", "node1:65536"),
    ):
        with pytest.raises(UsageError, match="is not an address"):
            parse_address(text)
