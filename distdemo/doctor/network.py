"""Names, interfaces and ports: what ranks meet through."""

from __future__ import annotations

from collections.abc import Sequence

from distdemo.doctor.records import Finding, broken, fine, warning
from distdemo.doctor.system import Interface, Surroundings
from distdemo.launcher.joined.interfaces import numeric

SLOW = 0.5  # seconds of a look-up that show in the start of a world
PATH = "The path to another machine is tested by distdemo hello --nnodes and distdemo bench links."
NAME_IT = "Add a line with this machine's address and {name} to /etc/hosts, or mend its DNS."


def hostname(around: Surroundings) -> Finding:
    """Whether the name resolves, and to an address that others could reach."""
    name = around.hostname
    found = around.resolve(name)
    if found.late:
        return broken(
            f"the name service gave no answer for {name} within {found.seconds:g} s",
            "gloo, TCPStore and torchrun look this name up when a world starts, and wait as long.",
            NAME_IT.format(name=name),
        )
    if not found.found:
        return broken(
            f"{name} does not resolve: {found.error}",
            "torchrun tells its ranks to meet at this name, and they wait until their timeout; "
            "gloo falls back to loopback, where no other machine reaches it.",
            NAME_IT.format(name=name),
        )
    text = f"{name} resolves to {', '.join(found.found)}"
    own = {address for each in around.interfaces() for address in each.addresses}
    if all(map(is_loopback, found.found)):
        return warning(
            f"{text}, which is loopback",
            "Worlds on this machine work. Across machines gloo tells the others this address, "
            "and they connect to themselves: connectFullMesh failed, connection refused.",
            "Set GLOO_SOCKET_IFNAME to an interface that the others reach, or give the name its "
            "real address in /etc/hosts.",
        )
    if not any(address in own or is_loopback(address) for address in found.found):
        return warning(
            f"{text}, which no interface here has",
            "gloo cannot bind to that address and falls back to loopback; the others may be told "
            "of another machine.",
            "Mend the entry in /etc/hosts or DNS, or set GLOO_SOCKET_IFNAME.",
        )
    if found.seconds >= SLOW:
        return warning(
            f"{text}, after {found.seconds:.1f} s",
            "Each rank looks it up when it starts.",
            "Add the name to /etc/hosts, or mend the first server in /etc/resolv.conf.",
        )
    return fine(text, addresses=found.found)


def loopback(around: Surroundings) -> Finding:
    """Whether two ends on this machine can talk at all."""
    reason = around.loopback()
    if not reason:
        return fine("two ends on 127.0.0.1 talk to each other")
    return broken(
        f"two ends on 127.0.0.1 can't talk: {reason}",
        "The ranks of one machine meet there.",
        "Bring it up: ip link set lo up. In a container, give it a network.",
    )


def firewall(around: Surroundings) -> Finding:
    """Signs of a packet filter that refuses connections by default."""
    active = {
        "ufw": "ENABLED=yes" in around.text("etc/ufw/ufw.conf").replace(" ", ""),
        "firewalld": around.exists("run/firewalld") or around.exists("var/run/firewalld"),
    }
    if any(active.values()):
        return warning(
            f"{' and '.join(name for name, is_on in active.items() if is_on)} is enabled",
            "Ranks on other machines connect to ports that are chosen anew for each world, which "
            "such a filter refuses by default.",
            f"Allow all TCP between the machines of a world. {PATH}",
        )
    tables = around.text("proc/net/ip_tables_names").split()
    seen = f"tables are loaded ({', '.join(tables)})" if tables else "none is seen from here"
    return fine(f"{seen}. {PATH.removesuffix('.')}")


def is_loopback(address: str) -> bool:
    """Whether nobody else reaches this address: 127.0.0.0/8 or ::1."""
    number = numeric(address)
    return number is not None and number.is_loopback


# ------------------------------------------------------------------------------------- interfaces


VIRTUAL = ("docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "tun", "tap", "ifb", "dummy")


def interfaces(around: Surroundings) -> Finding:
    """Those that are up and have an address."""
    outward = [each for each in _usable(around) if not each.loopback]
    if not outward:
        return warning(
            "none but loopback is up and has an address",
            "Worlds on this machine work; no other machine can be reached.",
            "Bring an interface up, or run the container with a network.",
        )
    facts = {each.name: each.addresses for each in outward}
    return fine(", ".join(f"{each.name} {each.addresses[0]}" for each in outward), **facts)


def gloo(around: Surroundings) -> Finding:
    """What gloo takes: the interfaces that a variable names, else what the hostname leads to."""
    named = around.environ.get("GLOO_SOCKET_IFNAME", "")
    usable = _usable(around)
    if not named:
        addresses = around.resolve(around.hostname).found
        fits = [each for each in usable if set(each.addresses) & set(addresses)]
        if not fits and any(map(is_loopback, addresses)):
            fits = [each for each in usable if each.loopback]
        if not fits:
            none = "loopback, because the hostname leads to no address of this machine"
            return fine(none, takes="lo")
        return fine(f"{fits[0].name}, to which the hostname leads", takes=fits[0].name)
    known = {each.name: each for each in around.interfaces()}
    names = [name.strip() for name in named.split(",")]
    do = f"Name one of {_names(usable)}, or unset it."
    missing = [name for name in names if name not in known]
    if missing:
        why = 'Every rank over gloo ends when it joins: "Unable to find address for".'
        if any(name.startswith(("^", "=")) for name in missing):
            why = "^ and = are NCCL's syntax; gloo takes plain names and ends every rank otherwise."
        quoted = " or ".join(map(repr, missing))
        return broken(f"GLOO_SOCKET_IFNAME={named}: there is no interface {quoted}", why, do)
    unusable = [name for name in names if known[name] not in usable]
    if unusable:
        return broken(
            f"GLOO_SOCKET_IFNAME={named}: {' or '.join(map(repr, unusable))} is down or has no "
            "address",
            "Every rank ends when it joins: gloo has nothing to bind to there.",
            do,
        )
    if all(known[name].loopback for name in names):
        return _loopback_only(f"GLOO_SOCKET_IFNAME={named}")
    return fine(f"{named}, by GLOO_SOCKET_IFNAME", takes=named)


def _loopback_only(setting: str) -> Finding:
    return warning(
        f"{setting}: loopback only",
        "Worlds on this machine work; ranks on other machines can't connect.",
        "Unset it, or name an interface that the others reach.",
    )


def nccl(around: Surroundings) -> Finding:
    """What NCCL takes, by its rules: a pattern, else anything before docker and loopback."""
    pattern = around.environ.get("NCCL_SOCKET_IFNAME", "")
    usable = _usable(around)
    if not pattern:
        taken = sorted(usable, key=_last_resort)[:1]
        why = "the first that is neither loopback nor a container's"
        return fine(f"{taken[0].name}, {why}" if taken else "none", takes=_names(taken))
    taken = [each for each in usable if matches(pattern, each.name)]
    if not taken:
        return broken(
            f"NCCL_SOCKET_IFNAME={pattern} leaves no interface",
            "Worlds over NCCL end when they start: no socket interface found.",
            f"Here are {_names(usable)}. eth takes all that begin so, =eth0 that one, ^docker all "
            "but those.",
        )
    if all(each.loopback for each in taken):
        return _loopback_only(f"NCCL_SOCKET_IFNAME={pattern}")
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


# ------------------------------------------------------------------------------------------ ports


USUAL = 29500  # torch's and torchrun's default


def usual(around: Surroundings) -> Finding:
    """Whether the port that everybody uses is free."""
    reason = around.bind(USUAL)
    if not reason:
        return fine(f"{USUAL} is free")
    return warning(
        f"{USUAL} is {reason}",
        "It is the default of torchrun and of init_process_group: the second world on a machine "
        "fails with EADDRINUSE, or joins the first.",
        "Give worlds a port of their own (torchrun --rdzv-endpoint HOST:0, MASTER_PORT), or end "
        f"what holds it: ss -ltnp 'sport = :{USUAL}'.",
    )
