"""Ports: the ones that are chosen anew, the usual one of a world, and the one that is set."""

from __future__ import annotations

from distdemo.doctor.network import is_loopback
from distdemo.doctor.seen import Seen, broken, fine, skipped, warning
from distdemo.doctor.surroundings import Surroundings
from distdemo.doctor.variables import seated

USUAL = 29500  # torch's and torchrun's default
FEW = 1000  # ports: gloo takes one a pair of ranks of a machine


def ephemeral(around: Surroundings) -> Seen:
    """Whether the system hands out ports, and how many there are."""
    reason = around.bind("127.0.0.1", 0)
    if reason:
        return broken(
            f"no port can be listened on: {reason}",
            "Ranks listen on ports that the system chooses.",
            "Close what holds them: ss -tan shows it.",
        )
    words = around.text("proc/sys/net/ipv4/ip_local_port_range").split()
    if len(words) < 2:
        return fine("the system hands them out")
    first, last = int(words[0]), int(words[1])
    if last - first + 1 < FEW:
        return warning(
            f"{first}-{last}: only {last - first + 1}",
            "gloo connects each pair of ranks, and every connection takes one.",
            "sysctl net.ipv4.ip_local_port_range='32768 60999'",
        )
    return fine(f"{first}-{last} are handed out", first=first, last=last)


def usual(around: Surroundings) -> Seen:
    """Whether the port that everybody uses is free."""
    reason = around.bind("", USUAL)
    if not reason:
        return fine(f"{USUAL} is free")
    return warning(
        f"{USUAL} is {reason}",
        "It is the default of torchrun and of init_process_group: the second world on a machine "
        "fails with EADDRINUSE, or joins the first.",
        "Give worlds a port of their own (torchrun --rdzv-endpoint HOST:0, MASTER_PORT), or end "
        f"what holds it: ss -ltnp 'sport = :{USUAL}'.",
    )


def master(around: Surroundings) -> Seen:
    """MASTER_ADDR and MASTER_PORT: set by an engine around us, or left behind by an old session."""
    address, port = (around.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    if not (address or port):
        return skipped("MASTER_ADDR and MASTER_PORT are not set")
    place = f"{address or '(no MASTER_ADDR)'}:{port or '(no MASTER_PORT)'}"
    facts = {"address": address, "port": port}
    if port and not (port.isdigit() and 0 < int(port) < 65536):
        return broken(
            f"MASTER_PORT={port} is no port",
            "init_process_group reads it and fails.",
            "Unset it, or set a number from 1 to 65535.",
            **facts,
        )
    if address and not around.resolve(address).found:
        return broken(
            f"MASTER_ADDR={address} does not resolve",
            "Every rank that reads it waits for the store until its timeout.",
            "Unset it, or name the machine of rank 0.",
            **facts,
        )
    seat = seated(around)
    if seat is not None:
        return fine(f"{place}, for rank {seat.rank} of {seat.world_size} ({seat.engine})", **facts)
    return _left_behind(around, address, port, place)


def _left_behind(around: Surroundings, address: str, port: str, place: str) -> Seen:
    own = {one for each in around.interfaces() for one in each.addresses}
    addresses = around.resolve(address).found if address else ()
    here = bool(port) and any(one in own or is_loopback(one) for one in addresses)
    taken = around.bind("", int(port)) if here else ""
    held = f", and that port is {taken} here" if taken else ""
    return warning(
        f"{place} is set, and this process is no rank of an engine{held}",
        "A shell profile, a batch script or an old session set it. A program that reads it joins, "
        "or waits for, a world that it may not belong to.",
        "unset MASTER_ADDR MASTER_PORT, unless you mean them.",
        address=address,
        port=port,
    )
