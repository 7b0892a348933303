"""Names and loopback: what this machine is called, and whether that leads anywhere."""

from __future__ import annotations

from collections.abc import Sequence

from distdemo.doctor.seen import Seen, broken, fine, warning
from distdemo.doctor.surroundings import Surroundings
from distdemo.doctor.system import Interface
from distdemo.launcher.joined.interfaces import numeric

SLOW = 0.5  # seconds of a look-up that show in the start of a world
NAME_IT = "Add a line with this machine's address and {name} to /etc/hosts, or mend its DNS."


def hostname(around: Surroundings) -> Seen:
    """Whether the name resolves, and to an address that others could reach."""
    name = around.hostname
    found = around.resolve(name)
    facts = {"hostname": name, "addresses": found.found, "seconds": found.seconds}
    if found.late:
        return broken(
            f"the name service gave no answer for {name} within {found.seconds:g} s",
            "gloo, TCPStore and torchrun look this name up when a world starts, and wait as long.",
            NAME_IT.format(name=name),
            **facts,
        )
    if not found.found:
        return broken(
            f"{name} does not resolve: {found.error}",
            "torchrun tells its ranks to meet at this name, and they wait until their timeout; "
            "gloo falls back to loopback, where no other machine reaches it.",
            NAME_IT.format(name=name),
            **facts,
        )
    text = f"{name} resolves to {', '.join(found.found)}"
    return _of_addresses(around, text, found.found, facts) or _of_time(text, found.seconds, facts)


def _of_addresses(
    around: Surroundings, text: str, addresses: Sequence[str], facts: dict[str, object]
) -> Seen | None:
    """What is wrong with them; None if nothing is."""
    own = {address for each in around.interfaces() for address in each.addresses}
    if all(map(is_loopback, addresses)):
        return warning(
            f"{text}, which is loopback",
            "Worlds on this machine work. Across machines gloo tells the others this address, "
            "and they connect to themselves: connectFullMesh failed, connection refused.",
            "Set GLOO_SOCKET_IFNAME to an interface that the others reach, or give the name its "
            "real address in /etc/hosts.",
            **facts,
        )
    if not any(address in own or is_loopback(address) for address in addresses):
        return warning(
            f"{text}, which no interface here has",
            "gloo cannot bind to that address and falls back to loopback; the others may be told "
            "of another machine.",
            "Mend the entry in /etc/hosts or DNS, or set GLOO_SOCKET_IFNAME.",
            **facts,
        )
    if not any("." in address for address in addresses):
        return warning(
            f"{text}: IPv6 only",
            "torch handles it; some older tools around it (gethostbyname) don't.",
            "Where a tool fails, give the name an IPv4 address too.",
            **facts,
        )
    return None


def _of_time(text: str, seconds: float, facts: dict[str, object]) -> Seen:
    if seconds < SLOW:
        return fine(text, **facts)
    return warning(
        f"{text}, after {seconds:.1f} s",
        "Each rank looks it up when it starts.",
        "Add the name to /etc/hosts, or mend the first server in /etc/resolv.conf.",
        **facts,
    )


def reverse_names(around: Surroundings) -> Seen:
    """Whether an address leads back to a name in good time: TCPStore asks for every connection."""
    own = [each.addresses[0] for each in around.interfaces() if _faces_out(each)]
    for address in ("127.0.0.1", *own[:1]):
        found = around.reverse(address)
        if found.late or found.seconds >= SLOW:
            took = (
                f"no answer within {found.seconds:g} s" if found.late else f"{found.seconds:.1f} s"
            )
            return warning(
                f"asking for the name of {address}: {took}",
                "TCPStore asks for the name of every peer that connects, so a world of many ranks "
                "starts slowly (64 ranks took 12 s where nobody answered).",
                f"Add {address} with a name to /etc/hosts, or mend reverse DNS.",
                address=address,
                seconds=found.seconds,
            )
    return fine("the name service answers in good time, name or none")


def _faces_out(interface: Interface) -> bool:
    return interface.up and bool(interface.addresses) and not interface.loopback


def loopback(around: Surroundings) -> Seen:
    """Whether two ends on this machine can talk at all."""
    reason = around.loopback()
    if not reason:
        return fine("two ends on 127.0.0.1 talk to each other")
    return broken(
        f"two ends on 127.0.0.1 can't talk: {reason}",
        "The ranks of one machine meet there.",
        "Bring it up: ip link set lo up. In a container, give it a network.",
    )


def firewall(around: Surroundings) -> Seen:
    """Signs of a packet filter that refuses connections by default."""
    ufw = "ENABLED=yes" in around.text("etc/ufw/ufw.conf").replace(" ", "")
    active = [name for name, is_on in (("ufw", ufw), ("firewalld", _firewalld(around))) if is_on]
    if active:
        return warning(
            f"{' and '.join(active)} is enabled",
            "Ranks on other machines connect to ports that are chosen anew for each world, which "
            "such a filter refuses by default.",
            "Allow all TCP between the machines of a world; distdemo doctor --peer tests the way.",
        )
    tables = around.text("proc/net/ip_tables_names").split()
    if tables:
        return fine(f"packet filter tables are loaded ({', '.join(tables)}); --peer tests the way")
    return fine("no packet filter is seen from here; --peer tests the way")


def _firewalld(around: Surroundings) -> bool:
    return around.exists("run/firewalld") or around.exists("var/run/firewalld")


def is_loopback(address: str) -> bool:
    """Whether nobody else reaches this address: 127.0.0.0/8 or ::1."""
    number = numeric(address)
    return number is not None and number.is_loopback
