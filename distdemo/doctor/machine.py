"""Checks of the machine: names, interfaces and ports, by which ranks connect; memory and limits."""

from __future__ import annotations

import resource
from collections.abc import Mapping, Sequence
from pathlib import Path

from distdemo.doctor.records import Diagnosis, broken, fine, skipped, warning
from distdemo.doctor.system import System
from distdemo.joined.interfaces import is_loopback
from distdemo.launcher.limits import MIB, UNLIMITED, Limit
from distdemo.view.format import short_size

DEFAULT_PORT = 29500  # torch's and torchrun's default
SHM = "/dev/shm"  # checked, not written
MIN_SHM = 16 * MIB
"""NCCL's first segment takes 9.2 MiB, and two ranks of MPICH about 10 MiB (measured)."""
LOW_SHM = 256 * MIB  # the default of containers, 64 MiB, is less
LOW_LOCKED_MEMORY = 64 * MIB  # the queues of a NIC for a few peers need more


def hostname(system: System) -> Diagnosis:
    """Check that the hostname resolves to an address that other machines can reach."""
    name = system.hostname
    addresses, reason = system.resolve(name)
    if not addresses:
        return broken(
            f"{name} does not resolve",
            f"{reason} torchrun's ranks rendezvous at this name and wait until their timeout; gloo "
            "falls back to loopback, which other machines can't reach.",
            f"Add a line with this machine's address and {name} to /etc/hosts, or fix its DNS "
            "entry.",
        )
    text = f"{name} resolves to {', '.join(addresses)}"
    if all(map(is_loopback, addresses)):
        return warning(
            f"{text}, which is loopback",
            "Worlds on this machine work. Across machines, gloo sends this address to its peers, "
            "which then connect to themselves: connectFullMesh failed, connection refused.",
            "Set GLOO_SOCKET_IFNAME to an interface that other machines can reach, or give the "
            "name its real address in /etc/hosts.",
        )
    own = {address for known in system.interfaces().values() for address in known}
    if not any(address in own or is_loopback(address) for address in addresses):
        return warning(
            f"{text}, which no interface here has",
            "gloo can't bind to that address and falls back to loopback; its peers may connect to "
            "the wrong machine.",
            "Fix the entry in /etc/hosts or DNS, or set GLOO_SOCKET_IFNAME.",
        )
    return fine(text)


def gloo_interface(system: System) -> Diagnosis:
    """Check that GLOO_SOCKET_IFNAME, if set, names interfaces that gloo can use."""
    setting = system.environ.get("GLOO_SOCKET_IFNAME", "")
    usable = system.interfaces()
    names = [name.strip() for name in setting.split(",") if setting]
    missing = [name for name in names if name not in usable]
    if missing:
        why = 'Every gloo rank fails when it joins: "Unable to find address for".'
        if any(name.startswith(("^", "=")) for name in missing):
            why = "^ and = are NCCL's syntax. gloo accepts only plain names, else every rank fails."
        return broken(
            f"GLOO_SOCKET_IFNAME={setting}: no interface {' or '.join(map(repr, missing))} is up "
            "and has an address",
            why,
            f"Set it to one of {', '.join(usable)}, or unset it.",
        )
    return _selected("GLOO_SOCKET_IFNAME", names, usable)


def nccl_interface(system: System) -> Diagnosis:
    """Check that NCCL_SOCKET_IFNAME, if set, matches an interface that NCCL can use."""
    setting = system.environ.get("NCCL_SOCKET_IFNAME", "")
    usable = system.interfaces()
    names = [name for name in usable if setting and matches(setting, name)]
    if setting and not names:
        return broken(
            f"NCCL_SOCKET_IFNAME={setting} matches no interface",
            "NCCL worlds fail when they start: no socket interface found.",
            f"Choices: {', '.join(usable)}. eth matches a prefix, =eth0 a full name, and ^docker "
            "excludes a prefix.",
        )
    return _selected("NCCL_SOCKET_IFNAME", names, usable)


def matches(pattern: str, name: str) -> bool:
    """Return True if NCCL's pattern (``eth,ib``, ``=eth0``, ``^docker``, ``^=lo``) matches."""
    rest = pattern.removeprefix("^")
    words = [word for word in rest.removeprefix("=").split(",") if word]
    is_listed = name in words if rest.startswith("=") else name.startswith(tuple(words))
    return is_listed != pattern.startswith("^")


def _selected(variable: str, names: Sequence[str], usable: Mapping[str, list[str]]) -> Diagnosis:
    """Return the finding for the interfaces that a variable selects."""
    if not names:
        return fine(f"not restricted by {variable}")
    listed = ", ".join(names)
    if all(is_loopback(usable[name][0]) for name in names):
        return warning(
            f"{variable} selects {listed}: loopback only",
            "Worlds on this machine work; ranks on other machines can't connect.",
            "Unset it, or set it to an interface that other machines can reach.",
        )
    return fine(f"{listed}, set by {variable}")


def default_port(system: System) -> Diagnosis:
    """Check that torch's default port is free."""
    reason = system.port_problem(DEFAULT_PORT)
    if not reason:
        return fine(f"{DEFAULT_PORT} is free")
    return warning(
        f"{DEFAULT_PORT} is {reason}",
        "It is the default of torchrun and init_process_group: a second world on this machine "
        "fails with EADDRINUSE, or joins the first.",
        "Give each world its own port (torchrun --rdzv-endpoint HOST:0, MASTER_PORT), or stop the "
        f"process that uses it: ss -ltnp 'sport = :{DEFAULT_PORT}'.",
    )


def firewall(system: System) -> Diagnosis:
    """Look for a firewall that rejects connections by default."""
    enabled = ["firewalld"] if system.exists("run/firewalld") else []
    if "ENABLED=yes" in system.text("etc/ufw/ufw.conf"):
        enabled.append("ufw")
    if not enabled:
        return fine("neither firewalld nor ufw is enabled")
    return warning(
        f"{' and '.join(enabled)} is enabled",
        "Ranks on other machines connect to ports that are chosen per world, which such a filter "
        "rejects by default.",
        "Allow all TCP traffic between the machines of a world. Test it with distdemo hello "
        "--nnodes and distdemo bench links.",
    )


# -------------------------------------------------------------------------------- memory and limits


def shared_memory(system: System) -> Diagnosis:
    """Check that /dev/shm is writable and large enough."""
    path = system.root / "dev/shm"
    if not path.exists():
        return skipped(f"this system has no {SHM}")
    usage = system.disk_usage(path)
    size = f"{short_size(usage.free)} free of {short_size(usage.total)}"
    if not system.writable(path):
        problem = "can't be written to" if usage.free else "is full"
        return broken(
            f"{SHM} {problem} ({size})",
            "NCCL, MPI and DataLoader workers share memory through it.",
            "Free some space, or restore its permissions: chmod 1777 /dev/shm.",
        )
    if usage.free < LOW_SHM:
        return (broken if usage.free < MIN_SHM else warning)(
            f"{SHM} has {size}",
            "NCCL uses about 10 MiB per pair of GPUs, MPI as much for a few ranks, and DataLoader "
            "workers keep whole batches there. If it is too small, ranks die of a bus error.",
            "Increase it: docker run --shm-size=1g (or --ipc=host), in Kubernetes an emptyDir of "
            "medium Memory at /dev/shm, elsewhere mount -o remount,size=1g /dev/shm.",
        )
    return fine(size)


def memory(system: System) -> Diagnosis:
    """Check how many ranks fit into memory if each one loads torch, as torchrun's do."""
    return _room(system.rank_limits("spawn")[0], enough=4, least=1)


def processes(system: System) -> Diagnosis:
    """Check the limits on the number of processes."""
    return _room(system.rank_limits("fork")[1], enough=128, least=4)


def open_files(system: System) -> Diagnosis:
    """Check how many files and sockets a process may open."""
    return _room(system.rank_limits("fork")[2], enough=128, least=16)


def _room(limit: Limit, enough: int, least: int) -> Diagnosis:
    """Return the finding for a limit on the number of ranks.

    Args:
        limit: Memory, processes or files.
        enough: Number of ranks without a warning.
        least: Number of ranks of a common world.
    """
    if limit.ranks >= UNLIMITED // 1024:
        return fine("unlimited")
    text = f"room for {max(0, limit.ranks):,} ranks"
    if limit.ranks >= enough:
        return fine(text)
    return (broken if limit.ranks < least else warning)(text, limit.why, limit.remedy)


def temporary(system: System) -> Diagnosis:
    """Check that files can be created in the temporary directory."""
    path = Path(system.environ.get("TMPDIR") or system.root / "tmp")
    if system.writable(path):
        return fine(str(path))
    return broken(
        f"no file can be created in {path}",
        "Sockets, rendezvous files and compiled kernels are kept there.",
        "Set TMPDIR to a directory that you can write to, with free space.",
    )


def locked_memory(system: System) -> Diagnosis:
    """Check the limit on locked memory, which RDMA needs to pin its buffers."""
    soft, _ = system.rlimit(resource.RLIMIT_MEMLOCK)
    text = "unlimited" if soft == resource.RLIM_INFINITY else short_size(soft)
    if not system.exists("sys/class/infiniband") and not system.exists("dev/infiniband"):
        return fine(f"{text}; there is no RDMA device")
    if 0 <= soft < LOW_LOCKED_MEMORY:
        return warning(
            f"{text}, and there is an RDMA device",
            "NCCL, UCX and libfabric pin memory for it, and fail or fall back to TCP.",
            "ulimit -l unlimited; docker run --ulimit memlock=-1; LimitMEMLOCK=infinity.",
        )
    return fine(text)
