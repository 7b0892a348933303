"""bench links over several hosts, one of whose cables is slow."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest
from hosts.network import Command, Host, Network

pytestmark = pytest.mark.hosts

Hosts = Callable[[int], Network]

PORT = 29513  # on hosts that nobody else has
SHAPED = ("rate", "200mbit", "burst", "64kb", "latency", "400ms")


def direct(one: Host, other: Host, *shape: str) -> None:
    """A cable beside the switch that these two take for each other, shaped by tbf."""
    cable = ["link", "add", "direct", "type", "veth", "peer", "name", "direct"]
    ip(one, *cable, "netns", other.namespace)
    for host in (one, other):
        ip(host, "link", "set", "direct", "up")
    for host, peer in ((one, other), (other, one)):
        ip(host, "route", "add", f"{peer.address}/32", "dev", "direct", "src", host.address)
        run("tc", "-n", host.namespace, "qdisc", "add", "dev", "direct", "root", "tbf", *shape)


def ip(host: Host, *words: str) -> None:
    run("ip", "-n", host.namespace, *words)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=10)


def terminal(net: Network, number: int, *command: str) -> Command:
    """The command as it is typed on this one of the hosts."""
    nodes = ("--nnodes", str(len(net)), "--node-rank", str(number))
    return net[number].fork_command(*command, *nodes, "--master", f"{net[0].address}:{PORT}")


def test_the_pair_with_the_slow_cable_is_named(hosts: Hosts) -> None:
    net = hosts(4)  # with fewer, one disturbed link more makes a slow rank of it
    direct(net[1], net[2], *SHAPED)
    asked = ("bench", "links", "-n", "4", "--sizes", "8,64K", "--rounds", "3")
    runs = [terminal(net, number, *asked, "--format", "json") for number in range(4)]
    (code, out, err), *others = [run.finish() for run in runs]
    assert code == 0, out + err
    assert [other[0] for other in others] == [0, 0, 0]
    document = json.loads(out)
    assert len(document["links"]) == 12
    slow = {(link["src"], link["dst"]): link for link in document["links"] if "slow" in link}
    assert {(1, 2), (2, 1)} <= set(slow), document["links"]
    assert "bandwidth" in slow[1, 2]["slow"]
    assert slow[1, 2]["bandwidth_bytes_per_s"] < 1.5 * 200e6 / 8
    assert "slow_ranks" not in document
