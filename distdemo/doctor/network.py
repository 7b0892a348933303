"""Checks of names, interfaces and ports, which ranks need to connect."""

from __future__ import annotations

from collections.abc import Sequence

from distdemo.doctor.records import Finding, broken, fine, warning
from distdemo.doctor.system import Interface, System
from distdemo.joined.interfaces import numeric

SLOW_S = 0.5  # seconds; a lookup this slow delays the start of a world
OTHER_MACHINES = "Test other machines with distdemo hello --nnodes and distdemo bench links."
ADD_NAME = "Add a line with this machine's address and {name} to /etc/hosts, or fix its DNS entry."


def hostname(system: System) -> Finding:
    """Check that the hostname resolves to an address that other machines can reach."""
    name = system.hostname
    found = system.resolve(name)
    if found.late:
        return broken(
            f"the name service gave no answer for {name} within {found.seconds:g} s",
            "gloo, TCPStore and torchrun look up this name when a world starts, and wait as long.",
            ADD_NAME.format(name=name),
        )
    if not found.found:
        return broken(
            f"{name} does not resolve: {found.error}",
            "torchrun's ranks rendezvous at this name and wait until their timeout; gloo falls "
            "back to loopback, which other machines can't reach.",
            ADD_NAME.format(name=name),
        )
    text = f"{name} resolves to {', '.join(found.found)}"
    own = {address for each in system.interfaces() for address in each.addresses}
    if all(map(is_loopback, found.found)):
        return warning(
            f"{text}, which is loopback",
            "Worlds on this machine work. Across machines, gloo sends this address to its peers, "
            "which then connect to themselves: connectFullMesh failed, connection refused.",
            "Set GLOO_SOCKET_IFNAME to an interface that other machines can reach, or give the "
            "name its real address in /etc/hosts.",
        )
    if not any(address in own or is_loopback(address) for address in found.found):
        return warning(
            f"{text}, which no interface here has",
            "gloo can't bind to that address and falls back to loopback; its peers may connect to "
            "the wrong machine.",
            "Fix the entry in /etc/hosts or DNS, or set GLOO_SOCKET_IFNAME.",
        )
    if found.seconds >= SLOW_S:
        return warning(
            f"{text}, after {found.seconds:.1f} s",
            "Each rank looks it up when it starts.",
            "Add the name to /etc/hosts, or fix the first server in /etc/resolv.conf.",
        )
    return fine(text, addresses=found.found)


def loopback(system: System) -> Finding:
    """Check that a TCP connection over loopback works."""
    reason, hint = system.loopback()
    if not reason:
        return fine("a connection over 127.0.0.1 works")
    return broken(
        reason[0].lower() + reason[1:],
        "The ranks on one machine connect to each other over 127.0.0.1.",
        hint,
    )


def firewall(system: System) -> Finding:
    """Look for a packet filter that rejects connections by default."""
    active = {
        "ufw": "ENABLED=yes" in system.text("etc/ufw/ufw.conf").replace(" ", ""),
        "firewalld": system.exists("run/firewalld") or system.exists("var/run/firewalld"),
    }
    if any(active.values()):
        return warning(
            f"{' and '.join(name for name, is_on in active.items() if is_on)} is enabled",
            "Ranks on other machines connect to ports that are chosen per world, which such a "
            "filter rejects by default.",
            f"Allow all TCP traffic between the machines of a world. {OTHER_MACHINES}",
        )
    tables = system.text("proc/net/ip_tables_names").split()
    what = f"tables are loaded ({', '.join(tables)})" if tables else "no packet filter found"
    return fine(f"{what}. {OTHER_MACHINES.removesuffix('.')}")


def is_loopback(address: str) -> bool:
    """Return True for an address in 127.0.0.0/8, or ::1."""
    number = numeric(address)
    return number is not None and number.is_loopback


# ------------------------------------------------------------------------------------- interfaces


VIRTUAL = ("docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "tun", "tap", "ifb", "dummy")


def interfaces(system: System) -> Finding:
    """Check for interfaces that are up and have an address."""
    outward = [each for each in _usable(system) if not each.loopback]
    if not outward:
        return warning(
            "no interface except loopback is up and has an address",
            "No other machine can be reached.",
            "Bring up an interface, or run the container with a network.",
        )
    facts = {each.name: each.addresses for each in outward}
    return fine(", ".join(f"{each.name} {each.addresses[0]}" for each in outward), **facts)


def gloo(system: System) -> Finding:
    """Check gloo's interface: GLOO_SOCKET_IFNAME, else the one with the hostname's address."""
    named = system.environ.get("GLOO_SOCKET_IFNAME", "")
    usable = _usable(system)
    if not named:
        addresses = system.resolve(system.hostname).found
        fits = [each for each in usable if set(each.addresses) & set(addresses)]
        if not fits and any(map(is_loopback, addresses)):
            fits = [each for each in usable if each.loopback]
        if not fits:
            reason = "the hostname resolves to no address of this machine"
            return fine(f"loopback, because {reason}", takes="lo")
        return fine(f"{fits[0].name}, which has the hostname's address", takes=fits[0].name)
    known = {each.name: each for each in system.interfaces()}
    names = [name.strip() for name in named.split(",")]
    hint = f"Set it to one of {_names(usable)}, or unset it."
    missing = [name for name in names if name not in known]
    if missing:
        why = 'Every gloo rank fails when it joins: "Unable to find address for".'
        if any(name.startswith(("^", "=")) for name in missing):
            why = "^ and = are NCCL's syntax. gloo accepts only plain names, else every rank fails."
        quoted = " or ".join(map(repr, missing))
        return broken(f"GLOO_SOCKET_IFNAME={named}: there is no interface {quoted}", why, hint)
    unusable = [name for name in names if known[name] not in usable]
    if unusable:
        return broken(
            f"GLOO_SOCKET_IFNAME={named}: {' or '.join(map(repr, unusable))} is down or has no "
            "address",
            "Every rank fails when it joins: gloo has no address to bind to.",
            hint,
        )
    if all(known[name].loopback for name in names):
        return _loopback_only(f"GLOO_SOCKET_IFNAME={named}")
    return fine(f"{named}, set by GLOO_SOCKET_IFNAME", takes=named)


def _loopback_only(setting: str) -> Finding:
    return warning(
        f"{setting}: loopback only",
        "Worlds on this machine work; ranks on other machines can't connect.",
        "Unset it, or set it to an interface that other machines can reach.",
    )


def nccl(system: System) -> Finding:
    """Check NCCL's interface: the pattern's, else any before docker and loopback."""
    pattern = system.environ.get("NCCL_SOCKET_IFNAME", "")
    usable = _usable(system)
    if not pattern:
        taken = sorted(usable, key=_last_resort)[:1]
        why = "the first except loopback and container interfaces"
        return fine(f"{taken[0].name}, {why}" if taken else "none", takes=_names(taken))
    taken = [each for each in usable if matches(pattern, each.name)]
    if not taken:
        return broken(
            f"NCCL_SOCKET_IFNAME={pattern} matches no interface",
            "NCCL worlds fail when they start: no socket interface found.",
            f"Choices: {_names(usable)}. eth matches a prefix, =eth0 a full name, and ^docker "
            "excludes a prefix.",
        )
    if all(each.loopback for each in taken):
        return _loopback_only(f"NCCL_SOCKET_IFNAME={pattern}")
    return fine(f"{_names(taken)}, set by NCCL_SOCKET_IFNAME={pattern}", takes=_names(taken))


def matches(pattern: str, name: str) -> bool:
    """Return True if NCCL's pattern (``eth,ib``, ``=eth0``, ``^docker``, ``^=lo``) matches."""
    excludes = pattern.startswith("^")
    rest = pattern.removeprefix("^")
    exact = rest.startswith("=")
    words = [word for word in rest.removeprefix("=").split(",") if word]
    hit = any(name == word if exact else name.startswith(word) for word in words)
    return hit != excludes


def _last_resort(interface: Interface) -> int:
    """Return the sort key: InfiniBand, other, container, then loopback interfaces."""
    if interface.loopback:
        return 3
    if interface.name.startswith("ib"):
        return 0
    return 2 if interface.name.startswith(VIRTUAL) else 1


def _usable(system: System) -> list[Interface]:
    return [each for each in system.interfaces() if each.up and each.addresses]


def _names(found: Sequence[Interface]) -> str:
    return ", ".join(each.name for each in found)


# ------------------------------------------------------------------------------------------ ports


DEFAULT_PORT = 29500  # torch's and torchrun's default


def default_port(system: System) -> Finding:
    """Check that torch's default port is free."""
    reason = system.bind(DEFAULT_PORT)
    if not reason:
        return fine(f"{DEFAULT_PORT} is free")
    return warning(
        f"{DEFAULT_PORT} is {reason}",
        "It is the default of torchrun and init_process_group: a second world on this machine "
        "fails with EADDRINUSE, or joins the first.",
        "Give each world its own port (torchrun --rdzv-endpoint HOST:0, MASTER_PORT), or stop the "
        f"process that uses it: ss -ltnp 'sport = :{DEFAULT_PORT}'.",
    )
