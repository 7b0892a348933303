"""Several hosts on one machine: network namespaces, joined by a bridge in a namespace of its own.

::

    h0: eth0 10.77.0.1/24 ──┐
    h1: eth0 10.77.0.2/24 ──┼── br0, in the namespace of the switch
    h2: eth0 10.77.0.3/24 ──┘

The machine's own namespace gets no interface and no route. Each host has a name of its own (a UTS
namespace), and knows the others' names through an /etc/hosts of its own; no other name resolves.
The hosts share the file system and the process numbers.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import wait_until
from hosts.inside import enter
from processes import FORKED, Run, Start

STEM = "distdemo"  # namespaces are called distdemo-PID-RANDOM-h0; a killed run's are found by it
ETC = Path("/etc/netns")  # what `ip netns exec` mounts over /etc, by namespace
QUICK = 10.0  # seconds that one of ip's may take

# A process with the host's name: the shell becomes the program.
_NAMED = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"')


def missing() -> str:
    """Why no hosts can be made here; empty if they can."""
    if platform.system() != "Linux":
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc", "unshare", "hostname"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (Debian: iproute2, util-linux, hostname)"
    trial = f"{STEM}-{os.getpid()}-{uuid.uuid4().hex[:6]}-try"
    made = _tried("ip", "netns", "add", trial)
    _tried("ip", "netns", "delete", trial)
    return f"no network namespace can be made here: {made.strip()}" if made else ""


@dataclass
class Host:
    """One host of a network.

    Attributes:
        name: its host name, ``h0``.
        address: its IPv4 address, on the interface ``eth0``.
        namespace: the network namespace that it is.
        switch: the namespace of the switch.
        programs: Starts programs.
    """

    name: str
    address: str
    namespace: str
    switch: str
    programs: Start

    @property
    def port(self) -> str:
        """The interface of the switch that its cable is in."""
        return f"to-{self.name}"

    def start(self, program: str | Path, *words: object, **options: Any) -> Run:
        """Start a program on this host; the arguments are those of ``Start``."""
        if program in FORKED:
            options["enter"] = self._enter
            return self.programs(program, *words, cold="in a network namespace", **options)
        line = ["netns", "exec", self.namespace, *_NAMED, self.name, program, *words]
        return self.programs("ip", *line, **options)

    def _enter(self) -> None:
        enter(self.namespace, self.name, ETC / self.namespace)

    def processes(self) -> list[int]:
        """All that runs on this host."""
        return processes(self.namespace)


@dataclass
class Network:
    """Hosts that reach each other, and nothing else.

    Attributes:
        shell: a program that does what ssh does for mpiexec: ``shell [-option…] h1 command…``
            runs a command line on that host, with that host's name.
    """

    hosts: list[Host]
    shell: Path

    def __getitem__(self, number: int) -> Host:
        return self.hosts[number]

    def __iter__(self) -> Iterator[Host]:
        return iter(self.hosts)

    def __len__(self) -> int:
        return len(self.hosts)

    def terminal(self, number: int, *command: str, port: int, master: str = "") -> Run:
        """Start the command as it is typed on one of the hosts.

        Args:
            number: Number of the host.
            command: Command line.
            port: Port of the rendezvous, on hosts that nobody else has.
            master: Name or address of the first host, as the command line has it.
        """
        where = f"{master or self[0].address}:{port}"
        nodes = ("--nnodes", str(len(self)), "--node-rank", str(number), "--master", where)
        return self[number].start("distdemo", *command, *nodes)

    def cut(self, host: Host) -> None:
        """Pull the host's cable.

        It is the switch's end, so that the host keeps address and routes, and only hears nothing.
        """
        do("ip", "-n", host.switch, "link", "set", host.port, "down")


@contextmanager
def network(count: int, programs: Start, folder: Path) -> Iterator[Network]:
    """Hosts that reach each other; whatever happens in the block, nothing of them is left after it.

    Args:
        count: how many.
        programs: Starts programs.
        folder: An empty folder.
    """
    remove_leftovers()
    stem = f"{STEM}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    switch = f"{stem}-switch"
    hosts = [
        Host(f"h{n}", f"10.77.0.{n + 1}", f"{stem}-h{n}", switch, programs) for n in range(count)
    ]
    try:
        _build(switch, hosts)
        yield Network(hosts, _remote_shell(hosts, folder / "shell"))
    finally:
        for host in hosts:
            _remove(host.namespace)
        _remove(switch)


def _build(switch: str, hosts: Sequence[Host]) -> None:
    """Make the namespaces, the bridge, the cables, and the names."""
    do("ip", "netns", "add", switch)
    do("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
    do("ip", "-n", switch, "link", "set", "br0", "up")
    names = "".join(f"{host.address} {host.name}\n" for host in hosts)
    for host in hosts:
        etc = ETC / host.namespace
        etc.mkdir(parents=True)
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{names}")
        (etc / "nsswitch.conf").write_text("hosts: files\n")  # no name server can be reached
        do("ip", "netns", "add", host.namespace)
        _connect(host)


def _remote_shell(hosts: Sequence[Host], path: Path) -> Path:
    """Write the program that starts commands on other hosts."""
    cases = "".join(f"  {host.name}|{host.address}) ns={host.namespace};;\n" for host in hosts)
    path.write_text(
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\n'
        f'case "$1" in\n{cases}  *) echo "no host $1" >&2; exit 255;;\nesac\n'
        'name=$1; shift\nexec ip netns exec "$ns" unshare --uts sh -c '
        '\'hostname "$0" && eval "$*"\' "$name" "$@"\n'
    )
    path.chmod(0o755)
    return path


def _connect(host: Host) -> None:
    """A cable from the host to the switch, and an address on it."""
    batch = (
        f"link add {host.port} type veth peer name eth0 netns {host.namespace}",
        f"link set {host.port} master br0 up",
    )
    own = ("link set lo up", f"addr add {host.address}/24 dev eth0", "link set eth0 up")
    do("ip", "-n", host.switch, "-batch", "-", given="\n".join(batch))
    do("ip", "-n", host.namespace, "-batch", "-", given="\n".join(own))


# ---------------------------------------------------------------------------------- taking it away


def remove_leftovers() -> None:
    """Remove what a run of ours left behind that was killed."""
    found = _tried_out("ip", "netns", "list").split() + (os.listdir(ETC) if ETC.is_dir() else [])
    for name in found:
        words = name.split("-")
        if words[0] == STEM and len(words) == 4 and not Path("/proc", words[1]).exists():
            _remove(name)


def _remove(namespace: str) -> None:
    """Kill all that runs in this namespace of ours, and remove it and its files."""
    assert namespace.startswith(f"{STEM}-")

    def gone() -> bool:
        left = processes(namespace)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    if Path("/run/netns", namespace).exists():
        wait_until(gone, QUICK)
        _tried("ip", "netns", "delete", namespace)
    shutil.rmtree(ETC / namespace, ignore_errors=True)
    with suppress(OSError):
        ETC.rmdir()  # unless it is somebody else's too


def processes(namespace: str) -> list[int]:
    """All living processes within it."""
    return [
        int(pid)
        for pid in _tried_out("ip", "netns", "pids", namespace).split()
        if not is_dead(int(pid))
    ]


def is_dead(pid: int) -> bool:
    """Whether it has ended and only waits for its parent to look."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def do(*command: str, given: str | None = None) -> None:
    """Run a program that has to succeed soon."""
    subprocess.run(command, check=True, input=given, text=True, capture_output=True, timeout=QUICK)


def _tried(*command: str) -> str:
    """What it complains of, empty if it does what it should."""
    done = subprocess.run(command, check=False, text=True, capture_output=True, timeout=QUICK)
    return "" if done.returncode == 0 else done.stderr or f"exit {done.returncode}"


def _tried_out(*command: str) -> str:
    done = subprocess.run(command, check=False, text=True, capture_output=True, timeout=QUICK)
    return done.stdout
