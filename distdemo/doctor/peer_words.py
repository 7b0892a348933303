"""What the visit of a peer means: each measurement as something seen."""

from __future__ import annotations

import errno
import statistics
from collections.abc import Mapping, Sequence

from distdemo.doctor.network import SLOW
from distdemo.doctor.seen import Seen, broken, fine, size, warning
from distdemo.doctor.system import Lookup

LISTEN = "Run distdemo doctor --listen [ADDRESS:]PORT on the other machine"
FIRST = 16 << 10  # bytes of the first message that fills packets
FAR = 0.02  # seconds of a round trip beyond which it is no local network
NARROW = 10e6  # bytes a second below which gradients take minutes
JITTER = 10  # times the median that a tenth of the round trips take
OFF = 1.0  # seconds between two clocks that show in logs


def of_name(host: str, found: Lookup) -> Seen:
    """Whether the peer's name resolves."""
    if found.late or not found.found:
        error = f"no answer within {found.seconds:g} s" if found.late else found.error
        return broken(
            f"{host} does not resolve: {error}",
            "No rank here could find one there by that name.",
            "Use its address, or add the name to /etc/hosts or DNS.",
        )
    if found.found == (host,):
        return fine(f"{host} is an address", addresses=found.found)
    text = f"{host} is {', '.join(found.found)}"
    if found.seconds < SLOW:
        return fine(text, addresses=found.found)
    return warning(
        f"{text}, after {found.seconds:.1f} s",
        "Every rank looks it up when it starts.",
        "Add the name to /etc/hosts.",
        addresses=found.found,
    )


def unconnected(peer: str, address: str, error: OSError, seconds: float) -> Seen:
    """No connection came about."""
    if isinstance(error, ConnectionRefusedError):
        return broken(
            f"{peer} refuses the connection",
            f"{address} answers, but nobody listens on that port, or a filter rejects it.",
            f"{LISTEN} first, and look at the port that it prints.",
        )
    if isinstance(error, TimeoutError):
        return broken(
            f"{peer} does not answer within {seconds:g} s",
            "A packet filter drops it on the way, the address is another network's, or the "
            "machine is off.",
            f"Try ping {address}. Allow TCP between the two machines in every filter and "
            "security group.",
        )
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return broken(
            f"there is no way to {peer}: {error.strerror}",
            "No route leads there from any interface, or nobody answers on that link.",
            f"ip route get {address} shows where it would go; check the cable and the netmask.",
        )
    return broken(
        f"{peer} can't be connected to: {error.strerror or error}",
        "Ranks would fail in the same way.",
        "Check the address and the port.",
    )


def connected(peer: str, own: str, interface: str, seconds: float) -> Seen:
    """From where the connection goes."""
    through = f" ({interface})" if interface else ""
    text = f"{peer} from {own}{through}, connected in {seconds * 1e3:.3g} ms"
    return fine(text, local=own, interface=interface, seconds=seconds)


def no_doctor(why: str) -> Seen:
    """Something else listens there, or it broke off at once."""
    return broken(
        f"no doctor answers there: {why}",
        "Something else listens on that port, or the doctor there has another visitor.",
        f"{LISTEN}, and try again.",
    )


def of_versions(ours: Mapping[str, str], theirs: Mapping[str, object]) -> Seen:
    """Whether both sides run the same."""
    other = {str(name): _plain(theirs.get(name)) for name in ours}
    apart = [name for name in ("torch", "distdemo") if ours.get(name) != other.get(name)]
    facts = {f"here_{name}": value for name, value in ours.items()}
    facts |= {f"there_{name}": value for name, value in other.items()}
    if not apart:
        return fine(", ".join(f"{n} {ours.get(n, '')}" for n in ("torch", "distdemo")), **facts)
    listed = "; ".join(f"{name} {ours.get(name)} here, {other.get(name)} there" for name in apart)
    return warning(
        listed,
        "Ranks of different releases may not understand each other: stores, headers and pickles "
        "change between them.",
        "Install the same releases on both machines.",
        **facts,
    )


def of_address(own: str, seen: str) -> Seen:
    """Whether the other side sees us under the address that we have."""
    seen = _plain(seen)
    if seen.removeprefix("::ffff:") == own.removeprefix("::ffff:"):
        return fine(f"{own}, and the peer sees the same", own=own, seen=seen)
    return warning(
        f"{own}, and the peer sees {seen or 'none'}",
        "Addresses are translated on the way (NAT). Ranks tell others their own address, which "
        "leads nowhere from there.",
        "Use a network without NAT: the host's in a container, a VPN or an overlay between sites.",
        own=own,
        seen=seen,
    )


def of_latency(trips: Sequence[float]) -> Seen:
    """The round trips of small messages, in seconds."""
    middle = statistics.median(trips)
    worst = sorted(trips)[int(len(trips) * 0.9)]
    text = f"{_time(middle)} median of {len(trips)}, {_time(worst)} at 90 %"
    facts = {"median_seconds": middle, "p90_seconds": worst}
    if middle > FAR:
        return warning(
            text,
            "Every collective waits for several of them; this is no local network.",
            "Keep a world within one site, or make few and large transfers.",
            **facts,
        )
    if worst > JITTER * middle and worst > 1e-3:
        return warning(
            text,
            "Some messages take much longer than others, and a collective waits for the slowest.",
            "Look for a busy machine, a wireless link or power saving.",
            **facts,
        )
    return fine(text, **facts)


def of_throughput(up: float, down: float) -> Seen:
    """Bytes a second each way over one connection."""
    text = f"{_rate(up)} there, {_rate(down)} back, over one connection"
    facts = {"up_bytes_per_second": up, "down_bytes_per_second": down}
    if min(up, down) < NARROW:
        return warning(
            text,
            "A gigabyte of gradients takes minutes.",
            "Look for a slow link, a tunnel or a shaper (tc qdisc); use the faster interface "
            "(GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME).",
            **facts,
        )
    if max(up, down) > 5 * min(up, down):
        return warning(
            text,
            "One direction is much slower: a cable, a duplex mismatch or a shaper.",
            "ethtool NAME shows what the link agreed on, ip -s link its errors.",
            **facts,
        )
    return fine(text, **facts)


def of_way_back(own: str, error: str) -> Seen:
    """Whether the other side can connect to us: gloo and NCCL do so in both directions."""
    if not error:
        return fine(f"the peer connects to a fresh port of {own}")
    return broken(
        f"the peer can't connect to a fresh port of {own}: {_plain(error)}",
        "Ranks listen on ports that the system chooses, and connect in both directions.",
        "Allow incoming TCP from the peer in this machine's packet filter or security group.",
    )


def of_clock(offset: float, trip: float) -> Seen:
    """By how much the other clock is ahead, in seconds; known to half a round trip."""
    where = "ahead" if offset > 0 else "behind"
    text = f"the peer's is {_time(abs(offset))} {where}, to within {_time(trip / 2)}"
    if abs(offset) < max(OFF, trip):
        return fine(text, offset_seconds=offset)
    return warning(
        text,
        "Log lines and traces of the two can't be put in order; tokens and certificates may "
        "count as expired.",
        "Run chrony, ntpd or systemd-timesyncd on both.",
        offset_seconds=offset,
    )


def broke_off(step: str, why: str, *, stalled: bool) -> Seen:
    """The visit ended before its end."""
    if step == "throughput" and stalled:
        return broken(
            f"small messages pass, {size(FIRST)} do not: {why}",
            "Packets of full size vanish on the way: an MTU that is too large for a tunnel or an "
            "overlay, and filtered ICMP that would say so. Worlds start and then hang.",
            "Lower the interface's MTU (ip link set dev NAME mtu 1400) on both machines, or let "
            'ICMP "fragmentation needed" pass.',
        )
    return broken(
        f"the connection broke off: {why}",
        "Ranks would lose it too.",
        "Look for the other side's end (--for), a filter that cuts connections, or a bad link.",
    )


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:,.1f} s"


def _rate(rate: float) -> str:
    for unit, scale in (("GB/s", 1e9), ("MB/s", 1e6)):
        if rate >= scale:
            return f"{rate / scale:.3g} {unit}"
    return f"{rate / 1e3:.3g} kB/s"


def _plain(text: object) -> str:
    """What another machine said, safe and short enough to show."""
    return "".join(char for char in str(text)[:80] if char.isprintable())
