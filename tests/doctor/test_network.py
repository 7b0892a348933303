"""Names, interfaces and ports of simulated machines."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

from distdemo.doctor import network, system, variables
from distdemo.doctor.records import Finding
from distdemo.doctor.system import Interface, Lookup, System

LO = Interface("lo", ("127.0.0.1", "::1"), loopback=True)
ETH = Interface("eth0", ("10.0.0.1",))
DOCKER = Interface("docker0", ("172.17.0.1",))
DOWN = Interface("eth1", ("10.1.0.1",), up=False)
BARE = Interface("eth2", ())


Case = tuple[Callable[[System], Finding], dict[str, Any], str, str]


def named(*found: str, seconds: float = 0.001, **more: Any) -> dict[str, Any]:
    """Return a name service that always gives this answer."""

    def answer(_: str) -> Lookup:
        return Lookup(found, seconds, **more)

    return {"resolve": answer}


def with_interfaces(*found: Interface, **variables: str) -> dict[str, Any]:
    return {"interfaces": lambda: (LO, *found), "environ": variables}


def gloo(name: str) -> dict[str, Any]:
    return with_interfaces(ETH, DOWN, BARE, DOCKER, GLOO_SOCKET_IFNAME=name)


def nccl(pattern: str) -> dict[str, Any]:
    return with_interfaces(DOCKER, ETH, DOWN, NCCL_SOCKET_IFNAME=pattern)


def master(address: str = "", port: str = "", **variables: str) -> dict[str, Any]:
    found = {"MASTER_ADDR": address, "MASTER_PORT": port, **variables}
    return {"environ": {name: value for name, value in found.items() if value}}


UNKNOWN = "Name or service not known"
HELD = {"bind": lambda port: "in use"}
UFW = "etc/ufw/ufw.conf"
CASES: list[Case] = [
    (network.hostname, named("10.0.0.1"), "fine", "node resolves to 10.0.0.1"),
    (network.hostname, named("127.0.1.1"), "warning", "127.0.1.1, which is loopback"),
    (network.hostname, named("10.9.9.9"), "warning", "which no interface here has"),
    (network.hostname, named("10.0.0.1", seconds=1.2), "warning", "after 1.2 s"),
    (network.hostname, named(error=UNKNOWN), "broken", UNKNOWN),
    (network.hostname, named(late=True, seconds=2.0), "broken", "no answer for node within 2 s"),
    (network.loopback, {}, "fine", ""),
    (network.loopback, {"loopback": lambda: "Network is unreachable"}, "broken", "Netw"),
    (network.firewall, {}, "fine", "no packet filter found"),
    (network.firewall, {"files": {"proc/net/ip_tables_names": "a\nb\n"}}, "fine", "a, b"),
    (network.firewall, {"files": {UFW: "# x\nENABLED=yes\n"}}, "warning", "ufw is enabled"),
    (network.firewall, {"files": {"run/firewalld/x": ""}}, "warning", "firewalld is enabled"),
    (network.interfaces, with_interfaces(ETH, DOWN, BARE), "fine", "eth0 10.0.0.1"),
    (network.interfaces, with_interfaces(DOWN), "warning", "only loopback"),
    (network.gloo, gloo("eth0"), "fine", "eth0, set by GLOO_SOCKET_IFNAME"),
    (network.gloo, gloo("lo"), "warning", "loopback only"),
    (network.gloo, gloo("eth0,wlan0"), "broken", "no interface 'wlan0'"),
    (network.gloo, gloo("^lo"), "broken", "no interface '^lo'"),
    (network.gloo, gloo("eth1"), "broken", "'eth1' is down or has no address"),
    (network.gloo, named("10.0.0.1"), "fine", "eth0, which has the hostname's address"),
    (network.gloo, named("127.0.1.1"), "fine", "lo, which has"),
    (network.gloo, named("10.9.9.9"), "fine", "loopback, because"),
    (network.nccl, nccl(""), "fine", "eth0, the first"),
    (network.nccl, nccl("=eth0"), "fine", "eth0, set by NCCL"),
    (network.nccl, nccl("lo"), "warning", "loopback only"),
    (network.nccl, nccl("ib"), "broken", "matches no interface"),
    (network.nccl, nccl("^eth,lo,docker"), "broken", "matches no interface"),
    (network.default_port, {}, "fine", "29500 is free"),
    (network.default_port, HELD, "warning", "29500 is in use"),
    (variables.master, {}, "skipped", "not set"),
    (variables.master, master("node", "1", RANK="1", WORLD_SIZE="2"), "fine", "for rank 1 of 2"),
    (variables.master, master("node", "1", SLURM_JOB_ID="7"), "warning", "no engine started"),
    (variables.master, master("node", "1", RANK="1"), "warning", "no engine started"),
    (variables.master, master("", "29500"), "warning", "(no MASTER_ADDR):29500"),
    (variables.master, master("node", "http"), "broken", "is not a port"),
    (variables.master, master("gone", "1"), "broken", "gone does not resolve"),
    (variables.master, {**master("localhost", "29500"), **HELD}, "warning", "is in use here"),
]


def test_network_of_a_machine(make_system: Any, assert_finding: Any) -> None:
    for check, changes, level, words in CASES:
        assert_finding(check(make_system(**changes)), level, words)


def test_gloo_rejects_the_pattern_syntax_of_nccl(make_system: Any) -> None:
    assert "NCCL's syntax" in network.gloo(make_system(**gloo("=eth0"))).why


def test_interface_addresses_exclude_link_local_ones(monkeypatch: Any) -> None:
    name = "lo"
    known = {
        "eth0": ("10.9.9.9",),
        name: ("127.0.0.1", "::1", "fe80::1"),
        f"{name}:1": ("10.0.0.1", "10.0.0.2"),
    }
    monkeypatch.setattr(system, "addresses", lambda: known)
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, name)])
    (found,) = system.interfaces()
    assert found.addresses == ("127.0.0.1", "10.0.0.1", "10.0.0.2", "::1")


def test_interfaces_of_this_machine() -> None:
    found = system.interfaces()
    assert [each.name for each in found] == [name for _, name in socket.if_nameindex()]
    for each in found:
        assert all(map(ipaddress.ip_address, each.addresses))
        assert each.loopback is any(map(network.is_loopback, each.addresses)) or not each.addresses


def test_patterns_of_nccl() -> None:
    taken = (("eth", "eth0"), ("eth,ib", "ib0"), ("=eth0,ib0", "ib0"), ("^eth", "ib0"))
    left = (("=eth", "eth0"), ("^eth", "eth0"), ("^=eth0", "eth0"), ("ib", "eth0"))
    assert all(network.matches(*each) for each in (*taken, ("^=eth0", "eth01")))
    assert not any(network.matches(*each) for each in left)


# ------------------------------------------------------------------------------------------ ports


def test_a_port_is_tested_without_listening_on_it(monkeypatch: Any) -> None:
    def listen(*_: Any) -> None:
        raise AssertionError("this port would be open to others for a moment")

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(socket.socket, "listen", listen)
        port = server.getsockname()[1]
        assert system.bind(port) == "in use"
    assert system.bind(port) == ""
