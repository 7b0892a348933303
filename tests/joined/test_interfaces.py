"""This machine's addresses and names, and sockets that listen on one address."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from typing import Any

import pytest

from distdemo.errors import UsageError
from distdemo.joined import interfaces
from distdemo.joined.interfaces import (
    address_towards,
    addresses,
    interface_of,
    is_loopback,
    listening_socket,
    name_for_others,
    parse_address,
)

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")


# ------------------------------------------------------------------------------------ addresses


@on_linux
def test_every_address_leads_to_its_interface_and_to_itself() -> None:
    found = addresses()
    assert "127.0.0.1" in found["lo"]
    for name, own in found.items():
        assert [interface_of(address) for address in own] == [name] * len(own)
        for address in own:
            if ":" not in address and not address.startswith("127."):
                assert address_towards(address, 1) == address
    assert interface_of("127.55.0.1") == "lo"
    assert interface_of("localhost") is None  # a name isn't an address


def test_what_means_this_machine_alone() -> None:
    assert address_towards("127.0.0.1", 29500) == "127.0.0.1"
    assert address_towards("localhost", 0) in ("127.0.0.1", "::1")
    for host in ("127.0.0.1", "127.0.1.1", "::1", "localhost", "LocalHost."):
        assert is_loopback(host)
    for host in ("10.0.0.1", "fe80::1", "0.0.0.0"):  # noqa: S104 - nothing is bound
        assert not is_loopback(host)


def looked_up(*answers: str) -> Any:
    """A resolver that knows one name."""

    def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in answers]

    return getaddrinfo


def routed(monkeypatch: pytest.MonkeyPatch, way_out: str, *own: str) -> None:
    """Fake machine named node1, as set up by Debian's installer, with these addresses."""

    def towards(host: str, port: int) -> str:
        if way_out:
            return way_out
        raise UsageError("No way leads out.")

    monkeypatch.setattr(socket, "getaddrinfo", looked_up("127.0.1.1"))
    monkeypatch.setattr(interfaces, "addresses", lambda: {"lo": ("127.0.0.1",), "eth": own})
    monkeypatch.setattr(interfaces, "address_towards", towards)


def test_a_name_of_this_machine_for_loopback_is_its_address_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for way_out, own, expected in (
        ("10.0.0.1", ("10.0.0.1", "10.9.0.1"), "10.0.0.1"),
        ("", ("10.9.0.1", "fe80::1"), "10.9.0.1"),
        ("", (), "node1"),
    ):
        routed(monkeypatch, way_out, *own)
        assert name_for_others("node1") == expected
    for host in ("localhost", "127.0.0.1", "::1", "10.0.0.7"):
        assert name_for_others(host) == host
    routed(monkeypatch, "", "10.0.0.1", "10.9.0.1")
    with pytest.raises(UsageError, match=r"10\.0\.0\.1, 10\.9\.0\.1"):  # ambiguous
        name_for_others("node1")
    monkeypatch.setattr(socket, "getaddrinfo", looked_up("127.0.1.1", "10.0.0.7"))
    assert name_for_others("node7") == "node7"


def test_a_name_that_does_not_resolve_is_refused() -> None:
    for name in ("a" * 70 + ".example", "no-such-host.invalid"):
        with pytest.raises(UsageError, match="can't be found"):
            listening_socket(name, 1)
        assert not is_loopback(name)


# ------------------------------------------------------------------------------------ listening


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
        for nnodes, others in ((2, "--node-rank 1;"), (4, "--node-rank 1 to 3;")):
            with pytest.raises(UsageError) as caught:  # a second node 0
                listening_socket("127.0.0.1", port, nnodes)
            assert others in caught.value.hint
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
