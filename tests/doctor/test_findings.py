"""Every check of doctor on simulated machines: the level of what it finds, and its words."""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from distdemo.doctor import gpus, machine, mpi, network, system, torch, variables
from distdemo.doctor.system import (
    Answer,
    DiskSpace,
    Interface,
    Lookup,
    TorchFacts,
)
from distdemo.errors import UsageError
from distdemo.launcher.limits import MIB, Limit
from distdemo.launcher.records import Returned, Verdict, WorldReport, WorldSpec

Case = tuple[Callable[..., Any], dict[str, Any], str, str]
"""A check, what is different from a healthy machine, and the finding's level and words."""


def env(**variables: str) -> dict[str, Any]:
    return {"environ": variables}


# ------------------------------------------------------------------------------------- the network

LO = Interface("lo", ("127.0.0.1", "::1"), loopback=True)
ETH = Interface("eth0", ("10.0.0.1",))
DOCKER = Interface("docker0", ("172.17.0.1",))
DOWN = Interface("eth1", ("10.1.0.1",), up=False)
BARE = Interface("eth2", ())


def named(*found: str, seconds: float = 0.001, **more: Any) -> dict[str, Any]:
    """Return a name service that always gives this answer."""

    def answer(_: str) -> Lookup:
        return Lookup(found, seconds, **more)

    return {"resolve": answer}


def with_interfaces(*found: Interface, **variables: str) -> dict[str, Any]:
    return {"interfaces": lambda: (LO, *found), "environ": variables}


def gloo(name: str) -> dict[str, Any]:
    return with_interfaces(ETH, DOWN, BARE, DOCKER, GLOO_SOCKET_IFNAME=name)


def nccl(pattern: str) -> dict[str, Any]:
    return with_interfaces(DOCKER, ETH, DOWN, NCCL_SOCKET_IFNAME=pattern)


def master(address: str = "", port: str = "", **variables: str) -> dict[str, Any]:
    found = {"MASTER_ADDR": address, "MASTER_PORT": port, **variables}
    return {"environ": {name: value for name, value in found.items() if value}}


UNKNOWN = "Name or service not known"
HELD = {"bind": lambda port: "in use"}
UFW = "etc/ufw/ufw.conf"
NETWORK: list[Case] = [
    (network.hostname, named("10.0.0.1"), "fine", "node resolves to 10.0.0.1"),
    (network.hostname, named("127.0.1.1"), "warning", "127.0.1.1, which is loopback"),
    (network.hostname, named("10.9.9.9"), "warning", "which no interface here has"),
    (network.hostname, named(error=UNKNOWN), "broken", UNKNOWN),
    (network.hostname, named(late=True, seconds=2.0), "broken", "no answer for node within 2 s"),
    (network.loopback, {}, "fine", ""),
    (network.loopback, {"loopback": lambda: ("It is down", "Try.")}, "broken", "it is down"),
    (network.firewall, {}, "fine", "no packet filter found"),
    (network.firewall, {"files": {"proc/net/ip_tables_names": "a\nb\n"}}, "fine", "a, b"),
    (network.firewall, {"files": {UFW: "# x\nENABLED=yes\n"}}, "warning", "ufw is enabled"),
    (network.firewall, {"files": {"run/firewalld/x": ""}}, "warning", "firewalld is enabled"),
    (network.interfaces, with_interfaces(ETH, DOWN, BARE), "fine", "eth0 10.0.0.1"),
    (network.interfaces, with_interfaces(DOWN), "warning", "except loopback"),
    (network.gloo, gloo("eth0"), "fine", "eth0, set by GLOO_SOCKET_IFNAME"),
    (network.gloo, gloo("lo"), "warning", "loopback only"),
    (network.gloo, gloo("eth0,wlan0"), "broken", "no interface 'wlan0'"),
    (network.gloo, gloo("eth1"), "broken", "'eth1' is down or has no address"),
    (network.gloo, named("10.0.0.1"), "fine", "eth0, which has the hostname's address"),
    (network.gloo, named("127.0.1.1"), "fine", "lo, which has"),
    (network.gloo, named("10.9.9.9"), "fine", "loopback, because"),
    (network.nccl, nccl(""), "fine", "eth0, the first"),
    (network.nccl, nccl("=eth0"), "fine", "eth0, set by NCCL"),
    (network.nccl, nccl("lo"), "warning", "loopback only"),
    (network.nccl, nccl("ib"), "broken", "matches no interface"),
    (network.default_port, {}, "fine", "29500 is free"),
    (network.default_port, HELD, "warning", "29500 is in use"),
    (variables.master, {}, "skipped", "not set"),
    (variables.master, master("node", "1", RANK="1", WORLD_SIZE="2"), "fine", "for rank 1 of 2"),
    (variables.master, master("node", "1", SLURM_JOB_ID="7"), "warning", "no engine started"),
    (variables.master, master("", "29500"), "warning", "(no MASTER_ADDR):29500"),
    (variables.master, master("node", "http"), "broken", "is not a port"),
    (variables.master, master("gone", "1"), "broken", "gone does not resolve"),
    (variables.master, {**master("localhost", "29500"), **HELD}, "warning", "is in use here"),
]

# ------------------------------------------------------------------------------------- the machine


def free(mib: float) -> dict[str, Any]:
    return {"disk_space": lambda path: DiskSpace(64 * MIB, int(mib * MIB))}


def room_for(forked: int, spawned: int) -> dict[str, Any]:
    ranks = {"fork": forked, "spawn": spawned}
    return {"limits": lambda method: (Limit(ranks[method], "Memory: little is free."),)}


def more(processes: int) -> dict[str, Any]:
    found = (Limit(1, "Memory."), Limit(processes, "Processes: ulimit -u is low."))
    return {"limits": lambda method: found}


def ulimit(soft: int, hard: int) -> dict[str, Any]:
    return {"rlimit": lambda name: (soft, hard)}


def quota(version: int, quota: str, usable: int = 8) -> dict[str, Any]:
    files = {"sys/fs/cgroup/cpu.max": f"{quota} 100000"}
    if version == 1:
        files = {f"sys/fs/cgroup/cpu/cpu.cfs_{n}_us": t for n, t in (("quota", quota),)}
        files["sys/fs/cgroup/cpu/cpu.cfs_period_us"] = "100000"
    return {"files": files, "cores": lambda: (usable, 8)}


def locked(*, rdma: bool, soft: int) -> dict[str, Any]:
    return {"files": {"sys/class/infiniband/x/y": ""} if rdma else {}, **ulimit(soft, soft)}


def read_only(*paths: str, **variables: str) -> dict[str, Any]:
    """Make these directories read-only, or all if none is given."""
    locked_paths = set(paths)
    return {
        "environ": variables,
        "writable": lambda path: bool(locked_paths) and str(path) not in locked_paths,
    }


MACHINE: list[Case] = [
    (machine.shared_memory, free(1), "broken", "1 MiB free"),
    (machine.shared_memory, free(64), "warning", "64 MiB free"),
    (machine.shared_memory, {"disk_space": lambda path: None}, "skipped", ""),
    (machine.shared_memory, read_only(), "broken", "can't be written to"),
    (machine.shared_memory, {**read_only(), **free(0)}, "broken", "is full"),
    (machine.ranks, room_for(1000, 50), "fine", "1,000 forked"),
    (machine.ranks, room_for(50, 3), "warning", "3 spawned"),
    (machine.temporary, {}, "fine", "tmp"),
    (machine.temporary, read_only(), "broken", "tmp"),
    (machine.temporary, read_only("/gone", TMPDIR="/gone"), "warning", "set by TMPDIR"),
    (machine.temporary, read_only(TMPDIR="/gone"), "broken", "/gone"),
    (machine.temporary, {"disk_space": lambda path: DiskSpace(100, 100)}, "warning", "100 B free"),
    (machine.open_files, ulimit(1024, 524288), "fine", "1,024 at most, 524,288 on request"),
    (machine.open_files, ulimit(256, 4096), "warning", "256"),
    (machine.open_files, ulimit(64, 64), "broken", "64"),
    (machine.open_files, {"rlimit": lambda name: None}, "skipped", "no such limit"),
    (machine.processes, more(30000), "fine", "30,000 ranks"),
    (machine.processes, more(3), "broken", "3 ranks"),
    (machine.locked_memory, locked(rdma=False, soft=8 << 20), "fine", "8 MiB"),
    (machine.locked_memory, locked(rdma=True, soft=8 << 20), "warning", "RDMA"),
    (machine.cores, quota(2, "max", 4), "fine", "4 of 8 (an affinity mask"),
    (machine.cores, quota(2, "max", 1), "warning", "1 of 8"),
    (machine.cores, quota(2, "150000"), "warning", "a quota of 1.5"),
    (machine.cores, quota(1, "200000"), "warning", "a quota of 2"),
]

# ------------------------------------------------------------------------------------ the software

HYDRA = "HYDRA build details:\n    Version:                                 5.0.2\n"
MPICH = "MPICH Version:      5.0.2\nMPICH Device: ch4:ucx ofi\n"
OPENMPI = "Open MPI v5.0.11, package: Open MPI x@y Distribution, ident: 5.0.11\n"
OLD_OPENMPI = "mpiexec (OpenRTE) 4.1.4\n\nReport bugs to"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n"

NODE = {"dev/nvidiactl": "", "dev/nvidia0": ""}
GPU, SMALL_GPU = {"name": "H100", "memory": 80 << 30}, {"name": "T4", "memory": 15 << 30}
MIXED = {"gpus": [SMALL_GPU, GPU, GPU]}
FOUND: dict[str, Any] = {
    "gpus": [GPU],
    "archs": ["sm_90"],
    "error": "",
    "warnings": [],
}
BY_HAND = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "node", "MASTER_PORT": "29500"}
RECORDER = {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_FR_DUMP_TEMP_FILE": "dumps/rank_"}
SALLOC = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "node[1-2]"}
STEP = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}


def facts(version: str = "2.13.0", **more: Any) -> dict[str, Any]:
    return {"torch": lambda: TorchFacts(version, **more)}


def with_gpus(answer: Answer | dict[str, Any], cuda: str = "13.0") -> Any:
    output = answer if isinstance(answer, Answer) else Answer(0, f"noise\n{json.dumps(answer)}\n")
    return {"files": NODE, "run": lambda command, seconds: output, **facts(cuda=cuda)}


def world(*values: float, verdict: Verdict | None = None) -> Any:
    outcomes = tuple(Returned(rank=rank, value=value) for rank, value in enumerate(values))
    report = WorldReport(WorldSpec(2), outcomes, verdict, 0.2, "fork", "")
    return lambda _: torch.world(lambda *_: report)


def unstartable(*_: Any) -> Any:
    raise UsageError("No loopback", "It is down.", "Bring it up.")


DIED = Verdict("Rank 1 died.", "A signal.", "Look.")
OLD_DRIVER = FOUND | {"gpus": [], "warnings": ["The NVIDIA driver is too old (version 1)."]}
SOFTWARE: list[Case] = [
    (torch.build, facts(cuda="13.0"), "fine", "for CUDA 13.0"),
    (torch.build, facts("2.7.1"), "warning", "2.7.1"),
    (torch.build, facts(distributed=False, backends={}), "broken", "without torch.distr"),
    (
        torch.built_in,
        facts(backends={"nccl": "2.3", "gloo": ""}, implementations={"nccl": "nccl2"}),
        "fine",
        "nccl 2.3 (nccl means nccl2), gloo",
    ),
    (torch.built_in, facts(backends={"mpi": ""}), "broken", "gloo is missing"),
    (world(3.0, 3.0), {}, "fine", "a world of 2 ranks over gloo: verified in 0.2 s"),
    (world(3.0, 4.0), {}, "broken", "instead of 3"),
    (world(verdict=DIED), {}, "broken", "Rank 1 died"),
    (lambda _: torch.world(unstartable), {}, "broken", "No loopback"),
    (mpi.library, {}, "skipped", "not installed"),
    (mpi.mpiexec, {}, "skipped", "without mpi4py"),
    (gpus.gpus, with_gpus(FOUND), "fine", "H100, 80 GiB"),
    (gpus.gpus, with_gpus(FOUND | MIXED), "fine", "T4, 15 GiB; 2 × H100, 80 GiB each"),
    (gpus.gpus, with_gpus(FOUND | {"warnings": ["sm_120 is not compatible."]}), "warning", "H100"),
    (gpus.gpus, with_gpus(FOUND | {"error": "CUDA error: no image."}), "broken", "kernel fails"),
    (gpus.gpus, with_gpus(OLD_DRIVER), "broken", "torch can use none"),
    (gpus.gpus, with_gpus(Answer(None)), "broken", "did not start within"),
    (gpus.gpus, with_gpus(Answer(-11, "Segmentation fault.")), "broken", "crashed the child"),
    (gpus.gpus, with_gpus(FOUND, cuda=""), "warning", "without CUDA"),
    (gpus.gpus, {}, "skipped", "no GPU"),
    (gpus.visible_devices, {}, "skipped", "not set"),
    (gpus.visible_devices, env(CUDA_VISIBLE_DEVICES="0,1"), "fine", "2 GPUs at most"),
    (gpus.visible_devices, env(CUDA_VISIBLE_DEVICES=""), "warning", "hides every GPU"),
    (gpus.visible_devices, env(CUDA_VISIBLE_DEVICES="0,-1,1"), "warning", "after -1"),
    (gpus.visible_devices, env(CUDA_VISIBLE_DEVICES="0,0"), "broken", "twice"),
    (variables.libraries, {}, "fine", ""),
    (variables.libraries, env(LD_PRELOAD="/opt/libnccl.so"), "warning", "LD_PRELOAD=/opt/libnccl"),
    (variables.engine, {}, "skipped", "no engine"),
    (variables.flight_recorder, {}, "skipped", "no engine"),
    (variables.flight_recorder, env(**BY_HAND), "warning", "TORCH_FR_BUFFER_SIZE and"),
    (variables.flight_recorder, env(**BY_HAND, **RECORDER), "fine", "latest 2,000 calls"),
    (variables.engine, env(**BY_HAND, TORCHELASTIC_RUN_ID="x"), "fine", "0 of 2 (torchrun)"),
    (variables.engine, env(**BY_HAND), "fine", "rank 0 of 2 (environment): RANK, WORLD_SIZE"),
    (variables.engine, env(**SALLOC), "skipped", "no engine"),
    (variables.engine, env(**SALLOC, **STEP), "fine", "rank 1 of 4 (slurm)"),
    (variables.engine, env(PMI_SIZE="2", PMI_RANK="1"), "fine", "rank 1 of 2 (mpi): PMI_RANK"),
    (variables.engine, env(RANK="0", WORLD_SIZE="2"), "broken", "MASTER_ADDR"),
    (variables.engine, env(**BY_HAND, PMI_SIZE="3", PMI_RANK="1"), "broken", "rank 1 of 3"),
]


def test_findings_of_a_machine(make_system: Any, assert_finding: Any) -> None:
    for check, changes, level, words in (*NETWORK, *MACHINE, *SOFTWARE):
        assert_finding(check(make_system(**changes)), level, words)
    assert "NCCL's syntax" in network.gloo(make_system(**gloo("=eth0"))).why


def test_patterns_of_nccl() -> None:
    taken = (("eth", "eth0"), ("eth,ib", "ib0"), ("=eth0,ib0", "ib0"), ("^eth", "ib0"))
    left = (("=eth", "eth0"), ("^eth", "eth0"), ("^=eth0", "eth0"), ("ib", "eth0"))
    assert all(network.matches(*each) for each in (*taken, ("^=eth0", "eth01")))
    assert not any(network.matches(*each) for each in left)


# ------------------------------------------------------------------------------- this very machine


def test_interface_addresses_exclude_link_local_ones(monkeypatch: Any) -> None:
    name = "lo"
    known = {
        "eth0": ("10.9.9.9",),
        name: ("127.0.0.1", "::1", "fe80::1"),
        f"{name}:1": ("10.0.0.1", "10.0.0.2"),
    }
    monkeypatch.setattr(system, "addresses", lambda: known)
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, name)])
    (found,) = system.interfaces()
    assert found.addresses == ("127.0.0.1", "10.0.0.1", "10.0.0.2", "::1")


def test_interfaces_of_this_machine() -> None:
    found = system.interfaces()
    assert [each.name for each in found] == [name for _, name in socket.if_nameindex()]
    for each in found:
        assert all(map(ipaddress.ip_address, each.addresses))
        assert each.loopback is any(map(network.is_loopback, each.addresses)) or not each.addresses


def test_a_port_is_tested_without_listening_on_it(monkeypatch: Any) -> None:
    def listen(*_: Any) -> None:
        raise AssertionError("this port would be open to others for a moment")

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(socket.socket, "listen", listen)
        port = server.getsockname()[1]
        assert system.bind(port) == "in use"
    assert system.bind(port) == ""


# -------------------------------------------------------------------------------------------- MPI


def with_mpi(make_system: Any, root: Path, library: str, *texts: str, **more: Any) -> Any:
    """Return a system with this MPI library, and these mpiexec on PATH and in Python's bin."""
    answers = {}
    for folder, text in zip(("path", "bin"), texts, strict=False):
        program = root / folder / "mpiexec"
        program.parent.mkdir(exist_ok=True)
        program.unlink(missing_ok=True)
        if text:
            program.touch(0o755)
            answers[str(program)] = text

    def run(command: Any, seconds: float) -> Answer:
        if command[0] in answers:
            return Answer(0, answers[command[0]])
        return Answer(0, json.dumps({"mpi4py": "4.1.2", "library": library}) + "\n")

    python = root / "bin" / "python"
    return make_system(
        **{
            **env(PATH=str(root / "path")),
            "installed": "mpi4py".__eq__,
            "run": run,
            "python": python,
            **more,
        }
    )


def test_mpiexec_matches_the_library(make_system: Any, assert_finding: Any, tmp_path: Path) -> None:
    system = partial(with_mpi, make_system, tmp_path)
    for library, on_path, in_bin, level, words in (
        (MPICH, HYDRA, "", "fine", "is from MPICH 5.0.2, like the library"),
        (MPICH, "", HYDRA, "fine", "bin/mpiexec is from MPICH 5.0.2"),
        (MPICH, OPENMPI, HYDRA, "broken", "is from Open MPI 5.0.11, but mpi4py loads MPICH 5.0.2"),
        (MPICH, INTEL, "", "warning", "is from Intel MPI 2021.18.1"),
        (MPICH, HYDRA.replace("5.0", "3.4"), "", "warning", "is from MPICH 3.4.2"),
        (MPICH, "what?", "", "warning", "names no known MPI"),
        (OPENMPI, OLD_OPENMPI, "", "warning", "is from Open MPI 4.1.4"),
        (MPICH, "", "", "warning", "no mpiexec on PATH"),
    ):
        seen = mpi.mpiexec(system(library, on_path, in_bin))
        assert_finding(seen, level, words)
        assert level != "broken" or "bin/mpiexec" in seen.hint, "it names the matching mpiexec"
    assert_finding(mpi.library(system(MPICH)), "fine", "MPICH 5.0.2, loaded by mpi4py 4.1.2")
    for answer, why in (
        (Answer(0, '{"error": "RuntimeError: cannot load MPI library"}'), "cannot load MPI"),
        (Answer(None), "didn't load within"),
        (Answer(-11, ""), "exited with -11"),
        (Answer(0, "null"), "exited with 0"),
    ):
        broken = system(MPICH, HYDRA, run=lambda command, seconds, answer=answer: answer)
        seen = mpi.library(broken)
        assert seen.level == "broken"
        assert why in seen.why
        assert_finding(mpi.mpiexec(broken), "skipped", "can't be loaded")


# ------------------------------------------------------------------------------ GPUs and variables


def test_driver_and_gpu_modes(make_system: Any, assert_finding: Any, tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").touch(0o755)
    for line, level, words in (
        ("570.1, Default, [N/A]", "fine", "driver 570.1"),
        ("570.1, Exclusive_Process, Disabled", "warning", "exclusive mode"),
        ("570.1, Default, Enabled", "warning", "MIG is enabled"),
        ("No devices were found", "skipped", ""),
    ):
        system = make_system(**with_gpus(Answer(0, f"{line}\n")), **env(PATH=str(tmp_path)))
        assert_finding(gpus.driver(system), level, words)


def test_harmful_variables_are_reported_if_set(make_system: Any, assert_finding: Any) -> None:
    bad = {
        "NCCL_DEBUG": "TRACE",
        "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
        "GLOO_DEVICE_TRANSPORT": "TCP_TLS",
    }
    for trap in variables.HARMFUL_VARIABLES:
        value = bad.get(trap.name, "1")
        caught, rest = variables.harmful_variables(make_system(**env(**{trap.name: value})))
        assert_finding(caught, "warning", f"{trap.name}={value}")
        assert trap.name not in rest.what
    environ = {"NCCL_P2P_DISABLE": "0", "NCCL_DEBUG": "INFO", "FI_PROVIDER": "tcp", "HOME": "/x"}
    (seen,) = variables.harmful_variables(make_system(**env(**environ)))
    assert_finding(seen, "fine", "FI_PROVIDER=tcp, NCCL_DEBUG=INFO, NCCL_P2P_DISABLE=0")
    assert seen.facts == {name: environ[name] for name in environ if name != "HOME"}


def test_libraries_on_ld_library_path(
    make_system: Any, assert_finding: Any, tmp_path: Path
) -> None:
    environ = env(LD_LIBRARY_PATH=f":{tmp_path}/lib")
    assert_finding(variables.libraries(make_system(**environ)), "fine")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libnccl.so.2").touch()
    assert_finding(variables.libraries(make_system(**environ)), "warning", "libnccl.so.2")
