"""Checks of GPUs: those torch can use, their driver, MIG, and variables that hide them.

A child process asks torch, but only if the system has a GPU.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from distdemo.backends.gpus import NODES
from distdemo.doctor.records import Finding, broken, fine, skipped, warning
from distdemo.doctor.system import System
from distdemo.view.format import plural, short_size

CUDA_TIMEOUT_S = 40.0  # importing torch and initialising CUDA on a machine with eight GPUs
QUERY = ("driver_version", "compute_mode", "mig.mode.current")


def gpus(system: System) -> Finding:
    """Check that torch can use the system's GPUs."""
    built = system.torch()
    if not _has_gpu(system):
        return skipped("this system has no GPU")
    if not (built.cuda or built.rocm):
        return warning(
            "this system has a GPU, but torch was built without CUDA",
            "nccl and GPU tensors need it.",
            "Install a CUDA wheel of torch: pytorch.org/get-started has the command.",
        )
    code = [str(system.python), "-m", "distdemo.doctor.gpu_child"]
    answer = system.run(code, CUDA_TIMEOUT_S)
    if answer.late:
        return broken(
            f"CUDA did not start within {CUDA_TIMEOUT_S:g} s",
            "A GPU, its driver or another program blocks it; every rank would wait just as long.",
            "Check with nvidia-smi and dmesg whether a GPU has fallen off the bus.",
        )
    found = _decode(answer.text)
    if found is None:
        return broken(
            "querying CUDA crashed the child process",
            answer.text.strip().splitlines()[-1] if answer.text.strip() else "It printed nothing.",
            "Check the GPU and its driver with nvidia-smi and dmesg.",
        )
    return _judge(found)


def _has_gpu(system: System) -> bool:
    """Return True if the system has a GPU."""
    return any(system.exists(node.lstrip("/")) for node in NODES)


def _decode(text: str) -> dict[str, Any] | None:
    """Decode the child's last line; None if it isn't a JSON object."""
    lines = text.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _judge(found: dict[str, Any]) -> Finding:
    """Return the worst problem of the GPUs."""
    listed = found["gpus"]
    warned = " ".join(found["warnings"])
    if not listed:
        return broken(
            "this system has a GPU, but torch can use none",
            warned or "CUDA_VISIBLE_DEVICES may hide all of them, or the driver is missing.",
            "If the driver is too old for this torch, update it, or install a torch wheel for an "
            "older CUDA.",
        )
    text = _kinds(listed)
    if found["error"]:
        return broken(f"{text}, and a kernel fails", found["error"], _install_hint(found))
    if warned:
        return warning(text, warned, _install_hint(found))
    return fine(text)


def _kinds(listed: Sequence[Mapping[str, Any]]) -> str:
    """Return the names and the memory of the GPUs: ``2 × A100, 40 GiB each; T4, 15 GiB``."""
    counts = Counter((gpu["name"], short_size(gpu["memory"])) for gpu in listed)
    return "; ".join(
        f"{name}, {memory}" if count == 1 else f"{count} × {name}, {memory} each"
        for (name, memory), count in counts.items()
    )


def _install_hint(found: dict[str, Any]) -> str:
    archs = ", ".join(found["archs"])
    return f"This torch has kernels for {archs}. Install a wheel with kernels for this GPU."


def visible_devices(system: System) -> Finding:
    """Check CUDA_VISIBLE_DEVICES, which hides GPUs and renumbers the rest."""
    value = system.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return skipped("CUDA_VISIBLE_DEVICES is not set")
    names = [name.strip() for name in value.split(",")]
    if names in ([""], ["-1"], ["NoDevFiles"]):
        return warning(
            f"CUDA_VISIBLE_DEVICES={value!r} hides every GPU",
            "torch sees none.",
            "unset CUDA_VISIBLE_DEVICES",
        )
    if len(set(names)) < len(names):
        return broken(
            f"CUDA_VISIBLE_DEVICES={value} names a GPU twice",
            "CUDA then shows no GPU at all.",
            "Name each GPU once.",
        )
    if "-1" in names:
        kept = names.index("-1")
        return warning(
            f"CUDA_VISIBLE_DEVICES={value}: all GPUs after -1 are hidden",
            f"{plural(kept, 'GPU')} can be used.",
            "Remove -1.",
        )
    return fine(f"CUDA_VISIBLE_DEVICES={value}: {plural(len(names), 'GPU')} at most")


def driver(system: System) -> Finding:
    """Check the driver, and the modes of the GPUs."""
    cards = nvidia_smi(system)
    if not cards:
        return skipped("nvidia-smi lists no GPU")
    text = f"driver {cards[0]['driver_version']}"
    exclusive = sum(card["compute_mode"].lower().startswith("exclusive") for card in cards)
    if exclusive:
        return warning(
            f"{text}; {plural(exclusive, 'GPU')} in exclusive mode",
            "Only one process at a time can use such a GPU: ranks that share it fail.",
            "nvidia-smi -c 0",
        )
    if any(card["mig.mode.current"].lower() == "enabled" for card in cards):
        return warning(
            f"{text}; MIG is enabled",
            "The GPU is partitioned, a process sees only one instance, and instances have no peer "
            "access: NCCL runs one rank on it.",
            "Give each rank its instance (CUDA_VISIBLE_DEVICES=MIG-…), or disable MIG: nvidia-smi "
            "-mig 0.",
        )
    return fine(text)


def nvidia_smi(system: System) -> list[dict[str, str]]:
    """Return the GPUs that nvidia-smi lists; empty if there is no nvidia-smi."""
    program = system.which("nvidia-smi")
    if program is None or not _has_gpu(system):
        return []
    query = f"--query-gpu={','.join(QUERY)}"
    answer = system.run([str(program), query, "--format=csv,noheader"], 10.0)
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.text.splitlines()]
    whole = [row for row in rows if len(row) == len(QUERY) and answer.status == 0]
    return [dict(zip(QUERY, row, strict=True)) for row in whole]
