"""This machine's addresses, names that mean it, and sockets that listen on one of them alone."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdemo.errors import UsageError
from distdemo.launcher.joined import interfaces
from distdemo.launcher.joined.interfaces import (
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
    assert interface_of("localhost") is None  # a name is no address


def test_the_way_to_this_machine_is_loopback_and_leaves_no_thread() -> None:
    before = threading.active_count()
    assert address_towards("127.0.0.1", 29500) == "127.0.0.1"
    assert address_towards("localhost", 0) in ("127.0.0.1", "::1")
    assert threading.active_count() == before  # whoever forks next must not find a second one


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.0.1.1", True),
        ("::1", True),
        ("localhost", True),
        ("LocalHost.", True),
        ("10.0.0.1", False),
        ("fe80::1", False),
        ("0.0.0.0", False),  # noqa: S104 - nothing is bound
    ],
)
def test_what_means_this_machine_alone(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


def looked_up(*answers: str) -> Any:
    """A resolver that knows one name."""

    def getaddrinfo(host: str, port: int, **options: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in answers]

    return getaddrinfo


def routed(monkeypatch: pytest.MonkeyPatch, way_out: str, *own: str) -> None:
    """A machine named node1 as Debian's installer sets it up, with these addresses."""

    def towards(host: str, port: int) -> str:
        if way_out:
            return way_out
        raise UsageError("No way leads out.")

    monkeypatch.setattr(socket, "getaddrinfo", looked_up("127.0.1.1"))
    monkeypatch.setattr(interfaces, "addresses", lambda: {"lo": ("127.0.0.1",), "eth": own})
    monkeypatch.setattr(interfaces, "address_towards", towards)


@pytest.mark.parametrize(
    ("way_out", "own", "expected"),
    [
        ("10.0.0.1", ("10.0.0.1", "10.9.0.1"), "10.0.0.1"),
        ("", ("10.9.0.1", "fe80::1"), "10.9.0.1"),
        ("", (), "node1"),
    ],
)
def test_a_name_of_this_machine_for_loopback_is_its_address_for_others(
    monkeypatch: pytest.MonkeyPatch, way_out: str, own: tuple[str, ...], expected: str
) -> None:
    routed(monkeypatch, way_out, *own)
    assert name_for_others("node1") == expected
    for host in ("localhost", "127.0.0.1", "::1", "10.0.0.7"):
        assert name_for_others(host) == host
    monkeypatch.setattr(socket, "getaddrinfo", looked_up("127.0.1.1", "10.0.0.7"))
    assert name_for_others("node7") == "node7"


def test_which_of_several_addresses_others_reach_is_not_guessed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    routed(monkeypatch, "", "10.0.0.1", "10.9.0.1")
    with pytest.raises(UsageError, match=r"10\.0\.0\.1, 10\.9\.0\.1"):
        name_for_others("node1")


def test_a_name_that_does_not_resolve_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: answer.wait(30) and [])
    monkeypatch.setattr(interfaces, "PATIENCE", 0.05)
    try:
        with pytest.raises(UsageError, match=r"nobody answered within 0\.05 s"):
            address_towards("node1", 1)
        assert not is_loopback("node1")
    finally:
        answer.set()
        others = [each for each in threading.enumerate() if each is not threading.main_thread()]
        for other in others:
            other.join(10)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="can't be found"):
        listening_socket("a" * 70 + ".example", 1)


# ------------------------------------------------------------------------------------ listening


@pytest.mark.parametrize("address", ["127.0.0.2", "::1"])
def test_a_socket_listens_on_its_address_and_on_no_other(address: str) -> None:
    with suppress(UsageError), listening_socket(address, 0) as listening:  # not all have IPv6
        port = listening.getsockname()[1]
        socket.create_connection((address, port), 10).close()
        for other in ("127.0.0.1", *(a for own in addresses().values() for a in own)):
            if other != address:
                with pytest.raises(OSError, match=r"refused|nvalid|unreachable"):
                    socket.create_connection((other, port), 10)


def test_a_port_can_be_taken_again_at_once_but_not_twice() -> None:
    with listening_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(UsageError, match=f"Port {port} of 127.0.0.1 is taken"):
            listening_socket("127.0.0.1", port)
        with socket.create_connection(("127.0.0.1", port), 10) as there:
            here, _ = listening.accept()
            here.close()  # this side closes first, so its end stays in TIME_WAIT
            assert there.recv(1) == b""
    listening_socket("127.0.0.1", port).close()


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("0.0.0.0", "stands for every address"),  # noqa: S104 - refused
        ("::", "stands for every address"),
        ("192.0.2.254", "does not have the address"),  # of a network that is only for examples
    ],
)
def test_an_address_that_is_not_this_machine_s_alone_is_refused(address: str, what: str) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(UsageError, match=what):
        listening_socket(address, 0)
    assert os.listdir("/proc/self/fd") == before


# -------------------------------------------------------------------------------------- parsing


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.1:29500", "10.0.0.1", 29500),
        ("node-1.example.org:65535", "node-1.example.org", 65535),
        ("gpu_3", "gpu_3", None),
        ("[fe80::1%eth0]:29500", "fe80::1%eth0", 29500),
        ("[::1]", "::1", None),
        ("fe80::1%eth0", "fe80::1%eth0", None),
        (" 10.0.0.1:0 ", "10.0.0.1", 0),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int | None) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":29500", "10.0.0.1:", "10.0.0.1:http", "10.0.0.1:-1", "10.0.0.1:1:2", "a b:1"),
        *("http://node1:1", "node1/path", "[node1]:1", "[10.0.0.1]:1", "[::1", "::1]:1", "[]:1"),
        *("[[::1]]:1", "-n:1", "node1:٣", "nödel:1", "10.0.0.1:999999", "node1:65536"),
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no address|no port"):
        parse_address(text)


@given(st.ip_addresses(), st.integers(0, 65535) | st.none())
def test_every_address_is_read_as_it_was_written(address: Any, port: int | None) -> None:
    host = f"[{address}]" if isinstance(address, ipaddress.IPv6Address) else str(address)
    text = host if port is None else f"{host}:{port}"
    assert parse_address(text) == (str(address), port)


@given(st.text(alphabet="a1.:[]%- ", max_size=12))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    with suppress(UsageError):
        host, _ = parse_address(text)
        assert host
        assert host in text
