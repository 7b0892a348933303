"""bench links over several hosts, one of whose cables is slow."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hosts.network import Host, Network, do

pytestmark = [pytest.mark.hosts, pytest.mark.processes]

Hosts = Callable[[int], Network]

SHAPED = ("rate", "200mbit", "burst", "64kb", "latency", "400ms")


def direct(one: Host, other: Host, *shape: str) -> None:
    """A cable beside the switch that these two take for each other, shaped by tbf."""
    cable = ["link", "add", "direct", "type", "veth", "peer", "name", "direct"]
    do("ip", "-n", one.namespace, *cable, "netns", other.namespace)
    for host in (one, other):
        do("ip", "-n", host.namespace, "link", "set", "direct", "up")
    for host, peer in ((one, other), (other, one)):
        route = ("route", "add", f"{peer.address}/32", "dev", "direct", "src", host.address)
        do("ip", "-n", host.namespace, *route)
        do("tc", "-n", host.namespace, "qdisc", "add", "dev", "direct", "root", "tbf", *shape)


def test_the_pair_with_the_slow_cable_is_named(hosts: Hosts) -> None:
    net = hosts(4)  # with fewer, one disturbed link more makes a slow rank of it
    direct(net[1], net[2], *SHAPED)
    asked = ("bench", "links", "-n", "4", "--sizes", "8,64K", "--format", "json")
    runs = [net.terminal(number, *asked, port=29513) for number in range(4)]
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
