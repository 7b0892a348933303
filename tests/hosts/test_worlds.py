"""The command over several hosts: one world, one result, the right host named when one fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from helpers import LOOPBACK, tcp_addresses, wait_until
from hosts.network import ETC, Host, Network
from processes import Run

pytestmark = [pytest.mark.hosts, pytest.mark.processes]

Hosts = Callable[[int], Network]

PORT = 29511  # on hosts that nobody else has
DISTDEMO = [sys.executable, "-m", "distdemo"]
MPIEXEC = Path(sys.executable).with_name("mpiexec")
needs_mpi = pytest.mark.skipif(not MPIEXEC.exists(), reason=f"there is no {MPIEXEC}")


def finished(runs: Sequence[Run]) -> list[tuple[int, str, str]]:
    """What each of them said: exit code, stdout and stderr."""
    return [run.finish() for run in runs]


def spread(text: str) -> dict[int, str]:
    """The host of each rank, as a document of a world that went well says it."""
    document = json.loads(text)
    assert document["ok"], document["errors"]
    return dict(enumerate(document["world"]["hosts"]))


def connected(host: Host) -> bool:
    """Whether it and its rank talk to others: ranks begin once they are known."""
    return len([pid for pid in host.processes() if set(tcp_addresses(pid)) - LOOPBACK]) >= 2


def started_by_hand(net: Network, program: str, *words: object) -> list[Run]:
    """Start a rank on each of two hosts, with the environment variables that torchrun sets."""
    where = {"MASTER_ADDR": net[0].address, "MASTER_PORT": str(PORT), "WORLD_SIZE": "2"}
    return [net[n].start(program, *words, env={**where, "RANK": str(n)}) for n in (0, 1)]


def test_an_engine_s_ranks_on_two_hosts_are_one_world(hosts: Hosts) -> None:
    net = hosts(2)
    (code, out, err), (other, nothing, _) = finished(started_by_hand(net, "distdemo", "all-reduce"))
    assert (code, other, nothing) == (0, 0, ""), err
    for rank, host in enumerate(["h0", "h1"]):
        row = next(line for line in out.splitlines() if line.startswith(f"│    {rank} │"))
        assert row.split("│")[2].strip() == host


def test_a_users_program_on_two_hosts_is_judged_as_one(hosts: Hosts, tmp_path: Path) -> None:
    file = tmp_path / "steps.py"
    file.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(2 + dist.get_rank()))\n"
    )
    runs = started_by_hand(hosts(2), "python", "-m", "distdemo.sanitizer", file)
    (code, out, _), (other, nothing, _) = finished(runs)
    assert 0 not in (code, other), out
    assert nothing == ""
    lines = [line.split() for line in out.splitlines() if "steps.py:3" in line]
    assert [line[:2] for line in lines] == [["rank", "0"], ["rank", "1"]], out


def kernel(address: str) -> str:
    """An IPv4 address as the kernel's tables write it."""
    return "".join(f"{int(part):02X}" for part in reversed(address.split(".")))


def test_a_pulled_cable_is_told_on_either_side_in_time(hosts: Hosts) -> None:
    """Also if own names are on loopback, as Debian writes them; nobody listens on more."""
    net = hosts(2)
    for host in net:
        file = ETC / host.namespace / "hosts"
        others = [line for line in file.read_text().splitlines() if not line.endswith(host.name)]
        file.write_text("\n".join(["127.0.0.1 localhost", f"127.0.1.1 {host.name}", *others, ""]))
    asked = ("barrier", "-n", "2", "--straggler", "0:90", "--timeout", "14", "--format", "json")
    where = ("--nnodes", "2", "--master", f"h0:{PORT}", "--node-rank")
    # A new program: one that is forked may inherit the resolver's lock, held by another thread.
    runs = [net[n].start(*DISTDEMO, *asked, *where, n) for n in (0, 1)]
    assert wait_until(lambda: all(map(connected, net)))
    pids = [pid for host in net for pid in host.processes()]
    heard = {address for pid in pids for address in tcp_addresses(pid, listening=True)}
    assert heard
    assert heard <= LOOPBACK | {kernel(host.address) for host in net}
    net.cut(net[1])
    (code, out, _), (other, told, _) = finished(runs)
    assert (code, other) == (1, 1)
    (error,) = json.loads(out)["errors"]
    assert error["ranks"] == [1]
    assert "no sign of life" in error["what"]
    assert json.loads(told)["errors"][0]["what"] == "Node 0 gave no verdict."


def test_a_host_that_never_comes_is_named(hosts: Hosts) -> None:
    net = hosts(2)
    lonely = net.terminal(0, "all-reduce", "--timeout", "1", port=PORT)
    lost = net.terminal(1, "all-reduce", "--timeout", "1", port=PORT + 1)  # nobody listens there
    (code, out, _), (other, _, err) = finished([lonely, lost])
    assert (code, other) == (1, 1)
    assert "Ranks 2, 3: never joined" in out
    assert f"Nothing answered at {net[0].address}:{PORT + 1} within 1 s" in err


@needs_mpi
@pytest.mark.mpi
def test_mpiexec_over_two_hosts_makes_one_world_over_mpi(hosts: Hosts) -> None:
    net = hosts(2)
    across = ("-launcher", "ssh", "-launcher-exec", str(net.shell), "-hosts", "h0,h1")
    asked = ["all-reduce", "--format", "json", "--backend", "mpi"]
    run = net[0].start(MPIEXEC, *across, "-n", "2", "-ppn", "1", *DISTDEMO, *asked)
    ((code, out, err),) = finished([run])
    assert code == 0, out + err
    assert spread(out) == {0: "h0", 1: "h1"}
    world = json.loads(out)["world"]
    assert (world["engine"], world["backend"]) == ("mpi", "mpi")
