"""Interfaces: which there are, and which gloo and NCCL would take."""

from __future__ import annotations

from collections.abc import Sequence

from distdemo.doctor.network import is_loopback
from distdemo.doctor.seen import Seen, broken, fine, warning
from distdemo.doctor.surroundings import Surroundings
from distdemo.doctor.system import Interface

VIRTUAL = ("docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "tun", "tap", "ifb", "dummy")
LEAST_MTU = 1280  # bytes: what every IPv6 link has to carry (RFC 8200)


def interfaces(around: Surroundings) -> Seen:
    """Those that are up and have an address."""
    found = [each for each in around.interfaces() if each.up and each.addresses]
    outward = [each for each in found if not each.loopback]
    facts = {each.name: f"{', '.join(each.addresses)}; MTU {each.mtu}" for each in found}
    if not outward:
        return warning(
            "none but loopback is up and has an address",
            "Worlds on this machine work; no other machine can be reached.",
            "Bring an interface up, or run the container with a network.",
            **facts,
        )
    return fine(", ".join(f"{each.name} {each.addresses[0]}" for each in outward), **facts)


def mtu(around: Surroundings) -> Seen:
    """Packets that are smaller than everything else expects."""
    outward = [each for each in _usable(around) if not each.loopback]
    small = [each for each in outward if each.mtu < LEAST_MTU]
    listed = ", ".join(f"{each.name} {each.mtu}" for each in (small or outward)) or "no interface"
    if not small:
        return fine(f"{listed} bytes")
    return warning(
        f"{listed} bytes, less than the {LEAST_MTU} that every IPv6 link carries",
        "Small messages pass and large ones may vanish, so that a world starts and then hangs.",
        "ip link set dev NAME mtu 1500, or what the network between the machines carries.",
    )


def gloo(around: Surroundings) -> Seen:
    """What gloo takes: the interfaces that a variable names, else what the hostname leads to."""
    named = around.environ.get("GLOO_SOCKET_IFNAME", "")
    if named:
        return _named(around, named)
    addresses = around.resolve(around.hostname).found
    taken = next((each for each in _usable(around) if set(each.addresses) & set(addresses)), None)
    if taken is None and any(map(is_loopback, addresses)):
        taken = next((each for each in _usable(around) if each.loopback), None)
    if taken is None:
        return fine(
            "loopback, because the hostname leads to no address of this machine", takes="lo"
        )
    return fine(f"{taken.name}, to which the hostname leads", takes=taken.name)


def _named(around: Surroundings, named: str) -> Seen:
    """Whether each name is one of an interface that gloo could use."""
    known = {each.name: each for each in around.interfaces()}
    names = [name.strip() for name in named.split(",")]
    missing = [name for name in names if name not in known]
    there = [each.name for each in _usable(around)]
    do = f"Name one of {', '.join(there)}, or unset it."
    if missing:
        return broken(
            f"GLOO_SOCKET_IFNAME={named}: there is no interface {_quoted(missing)}",
            _why_not(missing),
            do,
            value=named,
        )
    unusable = [name for name in names if name not in there]
    if unusable:
        return broken(
            f"GLOO_SOCKET_IFNAME={named}: {_quoted(unusable)} is down or has no address",
            "Every rank ends when it joins: gloo has nothing to bind to there.",
            do,
            value=named,
        )
    if all(known[name].loopback for name in names):
        return warning(
            f"GLOO_SOCKET_IFNAME={named}: loopback only",
            "Worlds on this machine work; ranks on other machines can't connect.",
            "Unset it, or name an interface that the others reach.",
            value=named,
        )
    return fine(f"{named}, by GLOO_SOCKET_IFNAME", takes=named)


def _why_not(names: Sequence[str]) -> str:
    if any(name.startswith(("^", "=")) for name in names):
        return "^ and = are NCCL's syntax; gloo takes plain names and ends every rank otherwise."
    return 'Every rank over gloo ends when it joins: "Unable to find address for".'


def nccl(around: Surroundings) -> Seen:
    """What NCCL takes, by its rules: a pattern, else anything before docker and loopback."""
    pattern = around.environ.get("NCCL_SOCKET_IFNAME", "")
    usable = _usable(around)
    if not pattern:
        taken = sorted(usable, key=_last_resort)[:1]
        why = "the first that is no loopback and no container's"
        return fine(f"{taken[0].name}, {why}" if taken else "none", takes=_names(taken))
    taken = [each for each in usable if matches(pattern, each.name)]
    if not taken:
        return broken(
            f"NCCL_SOCKET_IFNAME={pattern} leaves no interface",
            "Worlds over NCCL end when they start: no socket interface found.",
            f"Here are {_names(usable)}. eth takes all that begin so, =eth0 that one, ^docker all "
            "but those.",
            value=pattern,
        )
    if all(each.loopback for each in taken):
        return warning(
            f"NCCL_SOCKET_IFNAME={pattern}: loopback only",
            "Worlds on this machine work; ranks on other machines can't connect.",
            "Unset it, or name an interface that the others reach.",
            value=pattern,
        )
    return fine(f"{_names(taken)}, by NCCL_SOCKET_IFNAME={pattern}", takes=_names(taken))


def matches(pattern: str, name: str) -> bool:
    """Whether NCCL's pattern takes the interface: ``eth,ib``, ``=eth0``, ``^docker``, ``^=lo``."""
    excludes = pattern.startswith("^")
    rest = pattern.removeprefix("^")
    exact = rest.startswith("=")
    words = [word for word in rest.removeprefix("=").split(",") if word]
    hit = any(name == word if exact else name.startswith(word) for word in words)
    return hit != excludes


def _last_resort(interface: Interface) -> int:
    """InfiniBand's first, then any other, then those of containers, then loopback."""
    if interface.loopback:
        return 3
    if interface.name.startswith("ib"):
        return 0
    return 2 if interface.name.startswith(VIRTUAL) else 1


def _usable(around: Surroundings) -> list[Interface]:
    return [each for each in around.interfaces() if each.up and each.addresses]


def _names(found: Sequence[Interface]) -> str:
    return ", ".join(each.name for each in found)


def _quoted(names: Sequence[str]) -> str:
    return " or ".join(repr(name) for name in names)
