"""Checks of GPUs: those torch can use, their driver, and their modes.

Run as a program, this file prints what torch says of the GPUs. It initialises CUDA, after which a
process can't fork ranks, so ``gpus`` runs it in a child process.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from typing import Any

from distdemo.backends.gpus import NODES, why_none
from distdemo.doctor.records import Diagnosis, broken, fine, skipped, warning
from distdemo.doctor.system import System
from distdemo.launcher.torch_import import load_torch
from distdemo.view.format import plural, short_size

CUDA_TIMEOUT_S = 40.0  # importing torch and initialising CUDA on a machine with eight GPUs
QUERY = "--query-gpu=driver_version,compute_mode,mig.mode.current"


def gpus(system: System) -> Diagnosis:
    """Check that torch can use the system's GPUs."""
    if not _has_gpu(system):
        return skipped("this system has no GPU")
    output = system.run([str(system.python), "-m", "distdemo.doctor.gpus"], CUDA_TIMEOUT_S)
    last_line = output.text.strip().rpartition("\n")[2]
    if output.status != 0:
        return broken(
            "CUDA can't be used in a new process",
            last_line or f"It did not start within {CUDA_TIMEOUT_S:g} s, or crashed.",
            "Check the GPU and its driver with nvidia-smi and dmesg.",
        )
    return judge(json.loads(last_line))


def gpu_facts() -> dict[str, Any]:
    """Return the facts about the GPUs that torch can use. Initialises CUDA."""
    load_torch()  # before warnings are recorded: torch may warn about NumPy
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        usable = torch.cuda.is_available()
        count = torch.cuda.device_count() if usable else 0
        known = [torch.cuda.get_device_properties(index) for index in range(count)]
        error = ""
        for name, index in {gpu.name: index for index, gpu in enumerate(known)}.items():
            try:
                torch.zeros(1, device=f"cuda:{index}").item()
            except RuntimeError as failure:
                error = error or f"{name}: {str(failure).strip().splitlines()[0]}"
    return {
        "gpus": [[gpu.name, gpu.total_memory] for gpu in known],
        "archs": torch.cuda.get_arch_list() if usable else [],
        "for_gpus": bool(torch.version.cuda or torch.version.hip),
        "why_none": why_none() if not known else [],
        "error": error,
        "warnings": " ".join(str(warned.message).strip() for warned in caught),
    }


def judge(facts: dict[str, Any]) -> Diagnosis:
    """Return the worst problem of the GPUs.

    Args:
        facts: Result of ``gpu_facts``, on a machine with a GPU.
    """
    if not facts["gpus"]:
        what = "this system has a GPU, but torch can use none"
        return (broken if facts["for_gpus"] else warning)(what, *facts["why_none"])
    counts = Counter((name, short_size(memory)) for name, memory in facts["gpus"])
    text = "; ".join(
        f"{name}, {memory}" if count == 1 else f"{count} × {name}, {memory} each"
        for (name, memory), count in counts.items()
    )
    archs = ", ".join(facts["archs"])
    hint = f"This torch has kernels for {archs}. Install a wheel with kernels for this GPU."
    if facts["error"]:
        return broken(f"{text}, and a kernel fails", facts["error"], hint)
    if facts["warnings"]:
        return warning(text, facts["warnings"], hint)
    return fine(text)


def _has_gpu(system: System) -> bool:
    return any(system.exists(node.lstrip("/")) for node in NODES)


def modes(system: System) -> Diagnosis:
    """Check that no mode of the GPUs keeps ranks from sharing them."""
    program = system.which("nvidia-smi")
    rows = []
    if program is not None and _has_gpu(system):
        output = system.run([str(program), QUERY, "--format=csv,noheader"], 10.0)
        rows = [line.split(", ") for line in output.text.splitlines() if line.count(", ") == 2]
    if not rows:
        return skipped("nvidia-smi lists no GPU")
    text = f"driver {rows[0][0]}"
    exclusive = sum(mode.startswith("Exclusive") for _, mode, _ in rows)
    if exclusive:
        return warning(
            f"{text}; {plural(exclusive, 'GPU')} in exclusive mode",
            "Only one process at a time can use such a GPU: ranks that share it fail.",
            "nvidia-smi -c 0",
        )
    if any(mig == "Enabled" for _, _, mig in rows):
        return warning(
            f"{text}; MIG is enabled",
            "The GPU is partitioned, a process sees only one instance, and instances have no peer "
            "access: NCCL runs one rank on it.",
            "Give each rank its instance (CUDA_VISIBLE_DEVICES=MIG-…), or disable MIG: nvidia-smi "
            "-mig 0.",
        )
    return fine(text)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(gpu_facts()) + "\n")
