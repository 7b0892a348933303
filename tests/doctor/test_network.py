"""Names, interfaces and ports of machines that never were."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from distdemo.doctor import network, system, variables
from distdemo.doctor.system import Interface, Lookup

LO = Interface("lo", ("127.0.0.1", "::1"), loopback=True, mtu=65536)
ETH = Interface("eth0", ("10.0.0.1",))
DOCKER = Interface("docker0", ("172.17.0.1",))
DOWN = Interface("eth1", ("10.1.0.1",), up=False)
BARE = Interface("eth2", ())


def lookup(*found: str, seconds: float = 0.001, **more: Any) -> Any:
    return lambda name: Lookup(found, seconds, **more)


@pytest.mark.parametrize(
    ("answer", "level", "words"),
    [
        (lookup("10.0.0.1"), "fine", "node resolves to 10.0.0.1"),
        (lookup("127.0.0.1", "10.0.0.1"), "fine", "127.0.0.1, 10.0.0.1"),
        (lookup("127.0.1.1"), "warning", "127.0.1.1, which is loopback"),
        (lookup("::1", "127.0.0.1"), "warning", "which is loopback"),
        (lookup("10.9.9.9"), "warning", "which no interface here has"),
        (lookup("10.0.0.1", seconds=1.2), "warning", "after 1.2 s"),
        (lookup(error="Name or service not known"), "broken", "Name or service not known"),
        (lookup(late=True, seconds=2.0), "broken", "no answer for node within 2 s"),
    ],
)
def test_the_hostname_leads_to_an_address_of_this_machine(
    made: Any, explained: Any, answer: Any, level: str, words: str
) -> None:
    explained(network.hostname(made(resolve=answer)), level, words)


@pytest.mark.parametrize(
    ("answer", "level", "words"),
    [
        (lookup("node"), "fine", "in good time"),
        (lookup(error="Name or service not known"), "fine", "name or none"),
        (lookup("node", seconds=1.5), "warning", "127.0.0.1: 1.5 s"),
        (lookup(late=True, seconds=2.0), "warning", "no answer within 2 s"),
    ],
)
def test_reverse_dns_answers_in_good_time(
    made: Any, explained: Any, answer: Any, level: str, words: str
) -> None:
    explained(network.reverse_names(made(reverse=answer)), level, words)


def test_reverse_dns_is_asked_for_an_address_that_others_see_too(made: Any) -> None:
    asked: list[str] = []

    def reverse(address: str) -> Lookup:
        asked.append(address)
        return Lookup(("node",), 0.0)

    network.reverse_names(made(reverse=reverse))
    assert asked == ["127.0.0.1", "10.0.0.1"]


def test_loopback_is_there_or_not(made: Any, explained: Any) -> None:
    explained(network.loopback(made()), "fine")
    explained(network.loopback(made(loopback=lambda: "Network is unreachable")), "broken", "Netw")


@pytest.mark.parametrize(
    ("files", "level", "words"),
    [
        ({}, "fine", "none is seen"),
        ({"proc/net/ip_tables_names": "filter\nnat\n"}, "fine", "filter, nat"),
        ({"etc/ufw/ufw.conf": "ENABLED=no\n"}, "fine", "none is seen"),
        ({"etc/ufw/ufw.conf": "# x\nENABLED=yes\n"}, "warning", "ufw is enabled"),
        ({"run/firewalld/x": ""}, "warning", "firewalld is enabled"),
    ],
)
def test_packet_filters_are_seen(
    made: Any, explained: Any, files: dict[str, str], level: str, words: str
) -> None:
    explained(network.firewall(made(files)), level, words)


# ------------------------------------------------------------------------------------- interfaces


def test_interfaces_that_are_up_and_have_an_address_are_listed(made: Any, explained: Any) -> None:
    around = made(interfaces=lambda: (LO, ETH, DOWN, BARE))
    explained(network.interfaces(around), "fine", "eth0 10.0.0.1")
    explained(network.interfaces(made(interfaces=lambda: (LO, DOWN))), "warning", "none but")


def test_an_interface_has_all_addresses_but_those_of_one_link(monkeypatch: Any) -> None:
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


def test_the_interfaces_of_this_machine_are_told() -> None:
    found = system.interfaces()
    assert [each.name for each in found] == [name for _, name in socket.if_nameindex()]
    for each in found:
        assert all(map(ipaddress.ip_address, each.addresses))
        assert each.loopback is any(map(network.is_loopback, each.addresses)) or not each.addresses


@pytest.mark.parametrize(("mtu", "level"), [(1500, "fine"), (9001, "fine"), (576, "warning")])
def test_packets_must_not_be_too_small(made: Any, explained: Any, mtu: int, level: str) -> None:
    eth = Interface("eth0", ("10.0.0.1",), mtu=mtu)
    explained(network.mtu(made(interfaces=lambda: (LO, eth))), level, f"eth0 {mtu}")


@pytest.mark.parametrize(
    ("named", "level", "words"),
    [
        ("eth0", "fine", "eth0, by GLOO_SOCKET_IFNAME"),
        ("lo", "warning", "loopback only"),
        ("lo,eth0", "fine", "lo,eth0"),
        ("nonexistent0", "broken", "no interface 'nonexistent0'"),
        ("eth0,wlan0", "broken", "no interface 'wlan0'"),
        ("^lo", "broken", "no interface '^lo'"),
        ("=eth0", "broken", "no interface '=eth0'"),
        ("eth1", "broken", "'eth1' is down or has no address"),
        ("eth2", "broken", "'eth2' is down or has no address"),
    ],
)
def test_gloo_takes_the_interfaces_that_are_named(
    made: Any, explained: Any, named: str, level: str, words: str
) -> None:
    around = made(
        environ={"GLOO_SOCKET_IFNAME": named}, interfaces=lambda: (LO, ETH, DOWN, BARE, DOCKER)
    )
    seen = network.gloo(around)
    explained(seen, level, words)
    if named[0] in "^=":
        assert "NCCL's syntax" in seen.why


@pytest.mark.parametrize(
    ("addresses", "takes"),
    [(("10.0.0.1",), "eth0"), (("127.0.1.1",), "lo"), ((), "lo"), (("10.9.9.9",), "lo")],
)
def test_gloo_takes_what_the_hostname_leads_to(made: Any, addresses: Any, takes: str) -> None:
    seen = network.gloo(made(resolve=lookup(*addresses)))
    assert seen.facts["takes"] == takes


@pytest.mark.parametrize(
    ("pattern", "level", "words"),
    [
        ("", "fine", "eth0, the first"),
        ("eth", "fine", "eth0, by NCCL"),
        ("=eth0", "fine", "eth0, by NCCL"),
        ("^docker,lo", "fine", "eth0, by NCCL"),
        ("lo", "warning", "loopback only"),
        ("=eth", "broken", "leaves no interface"),
        ("ib", "broken", "leaves no interface"),
        ("^eth,lo,docker", "broken", "leaves no interface"),
    ],
)
def test_nccl_takes_what_its_pattern_leaves(
    made: Any, explained: Any, pattern: str, level: str, words: str
) -> None:
    around = made(
        environ={"NCCL_SOCKET_IFNAME": pattern}, interfaces=lambda: (LO, DOCKER, ETH, DOWN)
    )
    explained(network.nccl(around), level, words)


@pytest.mark.parametrize(
    ("pattern", "name", "taken"),
    [
        ("eth", "eth0", True),
        ("eth,ib", "ib0", True),
        ("=eth0,ib0", "ib0", True),
        ("=eth", "eth0", False),
        ("^eth", "eth0", False),
        ("^eth", "ib0", True),
        ("^=eth0", "eth0", False),
        ("^=eth0", "eth01", True),
    ],
)
def test_a_pattern_of_nccl(pattern: str, name: str, taken: bool) -> None:
    assert network.matches(pattern, name) is taken


# ------------------------------------------------------------------------------------------ ports


def test_the_system_hands_out_ports(made: Any, explained: Any) -> None:
    usual = {"proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n"}
    explained(network.ephemeral(made()), "fine")
    explained(network.ephemeral(made(usual)), "fine", "32768-60999")
    few = {"proc/sys/net/ipv4/ip_local_port_range": "60000 60099"}
    explained(network.ephemeral(made(few)), "warning", "only 100")
    explained(network.ephemeral(made(bind=lambda address, port: "in use")), "broken", "in use")


def test_whether_a_port_is_free_is_seen_without_listening_on_it(monkeypatch: Any) -> None:
    def listen(*_: Any) -> None:
        raise AssertionError("this port would be open to others for a moment")

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(socket.socket, "listen", listen)
        port = server.getsockname()[1]
        assert system.bind("127.0.0.1", port) == "in use"
        assert system.bind("", port) == "in use"
    assert system.bind("127.0.0.1", port) == ""
    assert system.bind("127.0.0.1", 0) == ""
    assert "assign" in system.bind("203.0.113.9", 0)


def test_the_usual_port_is_free_or_not(made: Any, explained: Any) -> None:
    explained(network.usual(made()), "fine", "29500 is free")
    explained(
        network.usual(made(bind=lambda address, port: "in use")), "warning", "29500 is in use"
    )


MASTER = {"MASTER_ADDR": "node", "MASTER_PORT": "1234"}


@pytest.mark.parametrize(
    ("environ", "level", "words"),
    [
        ({}, "skipped", "not set"),
        (MASTER | {"RANK": "1", "WORLD_SIZE": "2"}, "fine", "node:1234, for rank 1 of 2 (env"),
        (MASTER | {"PMI_RANK": "0", "PMI_SIZE": "2"}, "fine", "for rank 0 of 2 (mpi)"),
        (MASTER | {"SLURM_JOB_ID": "7"}, "warning", "no rank of an engine"),
        (MASTER | {"RANK": "1"}, "warning", "no rank of an engine"),
        (MASTER, "warning", "no rank of an engine"),
        ({"MASTER_ADDR": "other", "MASTER_PORT": "1"}, "warning", "other:1 is set"),
        ({"MASTER_PORT": "29500"}, "warning", "(no MASTER_ADDR):29500"),
        ({"MASTER_ADDR": "node", "MASTER_PORT": "http"}, "broken", "is no port"),
        ({"MASTER_ADDR": "node", "MASTER_PORT": "70000"}, "broken", "is no port"),
        ({"MASTER_ADDR": "gone", "MASTER_PORT": "1"}, "broken", "gone does not resolve"),
    ],
)
def test_a_master_belongs_to_an_engine(
    made: Any, explained: Any, environ: dict[str, str], level: str, words: str
) -> None:
    explained(variables.master(made(environ=environ)), level, words)


def test_a_master_whose_port_is_held_here_is_told_so(made: Any) -> None:
    environ = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    seen = variables.master(made(environ=environ, bind=lambda address, port: "in use"))
    assert "that port is in use here" in seen.seen
    environ["MASTER_ADDR"] = "other"
    seen = variables.master(made(environ=environ, bind=lambda address, port: "in use"))
    assert "in use" not in seen.seen
