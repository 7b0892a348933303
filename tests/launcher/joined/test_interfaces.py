from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
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
with_ipv6 = pytest.mark.skipif(
    not Path("/proc/net/if_inet6").exists(), reason="this machine has no IPv6"
)


def refused(error: UsageError) -> tuple[str, str, str]:
    """What it says: all three parts, none of them empty."""
    assert all((error.what, error.why, error.hint))
    return error.what, error.why, error.hint


# ------------------------------------------------------------------------------ own addresses


@on_linux
def test_loopback_and_all_interfaces_are_found() -> None:
    found = addresses()
    assert "127.0.0.1" in found["lo"]
    assert set(found) <= {name for _, name in socket.if_nameindex()}
    for own in found.values():
        for address in own:
            ipaddress.ip_address(address)


@on_linux
def test_every_address_leads_back_to_its_interface() -> None:
    for name, own in addresses().items():
        assert [interface_of(address) for address in own] == [name] * len(own)
    assert interface_of("127.55.0.1") == "lo"
    assert interface_of("192.0.2.254") is None or "192.0.2.254" in sum(addresses().values(), ())
    assert interface_of("localhost") is None  # a name is no address


@on_linux
def test_second_addresses_of_an_interface_count_too() -> None:
    """As ``ip`` sees them, where it is installed."""
    try:
        done = subprocess.run(
            ["ip", "-4", "-o", "address"], capture_output=True, text=True, timeout=10, check=True
        )
    except OSError:
        pytest.skip("ip is not installed")
    words = [line.split() for line in done.stdout.splitlines()]
    expected = {(each[1], each[3].partition("/")[0]) for each in words}
    found = {(name, each) for name, own in addresses().items() for each in own if ":" not in each}
    assert found == expected


def test_without_the_kernels_answer_the_own_name_is_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setattr(socket, "gethostbyname_ex", lambda name: (name, [], ["10.1.2.3"]))
    assert interfaces._ipv4() == [("", "10.1.2.3")]


# ------------------------------------------------------------------------------------ ways


def test_the_way_to_this_machine_is_loopback() -> None:
    assert address_towards("127.0.0.1", 29500) == "127.0.0.1"
    assert address_towards("localhost", 0) in ("127.0.0.1", "::1")


@on_linux
def test_the_way_to_an_own_address_is_that_address() -> None:
    for own in addresses().values():
        for address in own:
            if ":" not in address and not address.startswith("127."):
                assert address_towards(address, 1) == address


def test_to_ask_for_the_way_sends_nothing() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.setblocking(False)
        address_towards("127.0.0.1", listening.getsockname()[1])
        with pytest.raises(BlockingIOError):
            listening.recv(1)


def test_no_way_is_an_error_with_the_systems_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cut(socket.socket):
        def connect(self, address: Any) -> None:
            raise OSError(101, os.strerror(101))

    monkeypatch.setattr(socket, "socket", Cut)
    with pytest.raises(UsageError) as caught:
        address_towards("10.0.0.1", 1)
    what, why, _ = refused(caught.value)
    assert what == "This machine has no route to 10.0.0.1."
    assert "unreachable" in why


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


def test_a_name_means_this_machine_alone_if_all_its_addresses_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", looked_up("127.0.1.1"))
    assert is_loopback("node1")
    monkeypatch.setattr(socket, "getaddrinfo", looked_up("127.0.1.1", "10.0.0.1"))
    assert not is_loopback("node1")


def test_a_name_that_resolves_to_nothing_is_refused_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(*arguments: Any, **options: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert not is_loopback("node1")
    for use in (address_towards, listening_socket):
        with pytest.raises(UsageError) as caught:
            use("node1", 1)
        what, why, hint = refused(caught.value)
        assert what == "The host node1 can't be found."
        assert "Name or service not known" in why
        assert "/etc/hosts" in hint


def test_a_label_that_no_resolver_takes_is_refused() -> None:
    with pytest.raises(UsageError, match="can't be found"):
        address_towards("a" * 70 + ".example", 1)


def test_a_resolver_that_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_to_resolve_a_name_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    address_towards("localhost", 1)
    assert threading.active_count() == before


def routed(monkeypatch: pytest.MonkeyPatch, way_out: str, *own: str) -> None:
    """A machine named node1 in the way of Debian's installer, with these addresses."""

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
    routed(monkeypatch, "10.0.0.1", "10.0.0.1", "10.9.0.1")
    assert name_for_others("node1") == "10.0.0.1"
    routed(monkeypatch, "", "10.9.0.1", "fe80::1")
    assert name_for_others("node1") == "10.9.0.1"
    routed(monkeypatch, "")
    assert name_for_others("node1") == "node1"


def test_which_of_several_addresses_others_reach_is_not_guessed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    routed(monkeypatch, "", "10.0.0.1", "10.9.0.1")
    with pytest.raises(UsageError) as caught:
        name_for_others("node1")
    _, why, hint = refused(caught.value)
    assert "10.0.0.1, 10.9.0.1" in why
    assert "the address instead of the name" in hint


def test_what_others_reach_anyway_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    routed(monkeypatch, "10.0.0.1", "10.0.0.1")
    for host in ("localhost", "127.0.0.1", "::1", "10.0.0.7"):
        assert name_for_others(host) == host
    monkeypatch.setattr(socket, "getaddrinfo", looked_up("10.0.0.7"))
    assert name_for_others("node7") == "node7"


# ---------------------------------------------------------------------------------- listening


def test_a_socket_listens_on_its_address_and_on_no_other() -> None:
    with listening_socket("127.0.0.2", 0) as listening:
        port = listening.getsockname()[1]
        socket.create_connection(("127.0.0.2", port), 10).close()
        for other in ("127.0.0.1", *(a for own in addresses().values() for a in own)):
            with pytest.raises(OSError, match=r"refused|invalid|unreachable|Invalid"):
                socket.create_connection((other, port), 10)


@with_ipv6
def test_a_socket_listens_on_an_ipv6_address_alone() -> None:
    with listening_socket("::1", 0) as listening:
        port = listening.getsockname()[1]
        socket.create_connection(("::1", port), 10).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 10)


def test_a_port_can_be_taken_again_at_once() -> None:
    with listening_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), 10) as there:
            here, _ = listening.accept()
            here.close()  # this side closes first, so its end stays in TIME_WAIT
            assert there.recv(1) == b""
    listening_socket("127.0.0.1", port).close()


def test_a_taken_port_is_refused() -> None:
    with listening_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(UsageError) as caught:
            listening_socket("127.0.0.1", port)
    what, _, hint = refused(caught.value)
    assert what == f"Port {port} of 127.0.0.1 is taken."
    assert "another port" in hint


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        listening_socket("192.0.2.254", 0)  # of a network that is only for examples
    what, _, hint = refused(caught.value)
    assert what == "This machine does not have the address 192.0.2.254."
    for own in addresses().values():
        for address in own:
            number = ipaddress.ip_address(address)
            assert (address in hint) != (number.is_loopback or number.is_link_local)


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])  # noqa: S104 - refused
def test_an_address_that_means_all_is_refused(address: str) -> None:
    with pytest.raises(UsageError) as caught:
        listening_socket(address, 0)
    what, why, _ = refused(caught.value)
    assert what == f"{address} stands for every address of this machine."
    assert "every network" in why


def test_no_descriptor_is_left_by_a_refusal() -> None:
    before = os.listdir("/proc/self/fd") if Path("/proc/self/fd").is_dir() else []
    with pytest.raises(UsageError):
        listening_socket("192.0.2.254", 0)
    assert (os.listdir("/proc/self/fd") if before else []) == before


def test_a_port_that_the_system_keeps_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class Guarded(socket.socket):
        def bind(self, address: Any) -> None:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "socket", Guarded)
    with pytest.raises(UsageError) as caught:
        listening_socket("127.0.0.1", 80)
    what, why, hint = refused(caught.value)
    assert what == "This program can't listen on 127.0.0.1, port 80."
    assert "Permission denied" in why
    assert "1023" in hint


# ------------------------------------------------------------------------------------ parsing


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.1:29500", "10.0.0.1", 29500),
        ("10.0.0.1", "10.0.0.1", None),
        ("node1:1", "node1", 1),
        ("node-1.example.org:65535", "node-1.example.org", 65535),
        ("gpu_3", "gpu_3", None),
        ("[fe80::1]:29500", "fe80::1", 29500),
        ("[fe80::1%eth0]:29500", "fe80::1%eth0", 29500),
        ("[::1]", "::1", None),
        ("::1", "::1", None),
        ("fe80::1%eth0", "fe80::1%eth0", None),
        (" 10.0.0.1:0 ", "10.0.0.1", 0),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int | None) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":29500",
        "10.0.0.1:",
        "10.0.0.1:http",
        "10.0.0.1:-1",
        "10.0.0.1:1:2",
        "a b:1",
        "http://node1:1",
        "node1/path",
        "[node1]:1",
        "[10.0.0.1]:1",
        "[::1",
        "::1]:1",
        "[]:1",
        "[[::1]]:1",
        "-n:1",
        "node1:٣",
        "nödel:1",
        "10.0.0.1:999999",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(text)
    what, _, hint = refused(caught.value)
    assert what == f"{text!r} is no address."
    assert "[fe80::1]:29500" in hint


def test_a_port_beyond_the_last_one_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        parse_address("node1:65536")
    what, _, hint = refused(caught.value)
    assert what == "There is no port 65536."
    assert "node1:29500" in hint


@given(st.ip_addresses(), st.integers(0, 65535) | st.none())
def test_every_address_is_read_as_it_was_written(address: Any, port: int | None) -> None:
    host = f"[{address}]" if address.version == 6 else str(address)
    text = host if port is None else f"{host}:{port}"
    assert parse_address(text) == (str(address), port)


@given(st.text(alphabet="a1.:[]%- ", max_size=12))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        host, _ = parse_address(text)
    except UsageError:
        return
    assert host
    assert host in text
