"""GPUs: which torch can use, their driver, MIG, and what hides them.

The system is asked first; only where it shows a GPU, a child process asks torch.
"""

from __future__ import annotations

import json
from typing import Any

from distdemo.backends.gpus import NODES
from distdemo.doctor.records import Finding, broken, fine, skipped, warning
from distdemo.doctor.system import Surroundings
from distdemo.view.format import plural, short_size

PATIENCE = 40.0  # seconds: torch's import and CUDA's start on a machine with eight GPUs
QUERY = ("driver_version", "compute_mode", "mig.mode.current")


def gpus(around: Surroundings) -> Finding:
    """What torch can use of what the system shows."""
    built = around.torch()
    if not _shown(around):
        return skipped("this system shows no GPU")
    if not (built.cuda or built.rocm):
        return warning(
            "this system shows a GPU, and torch was built without CUDA",
            "Worlds over nccl and tensors on the GPU need it.",
            "Install a CUDA wheel of torch: pytorch.org/get-started has the command.",
        )
    code = [str(around.python), "-m", "distdemo.doctor.gpu_child"]
    answer = around.ask(code, PATIENCE)
    if answer.late:
        return broken(
            f"CUDA did not start within {PATIENCE:g} s",
            "A GPU, its driver or another program holds it up; every rank would wait as long.",
            "nvidia-smi and dmesg show whether a GPU has fallen off the bus.",
        )
    found = _document(answer.text)
    if found is None:
        return broken(
            "asking CUDA ended the process that asked",
            answer.text.strip().splitlines()[-1] if answer.text.strip() else "It said nothing.",
            "nvidia-smi and dmesg show what is wrong with the GPU or its driver.",
        )
    return _judged(found)


def _shown(around: Surroundings) -> bool:
    """Whether the system shows a GPU at all."""
    return any(around.exists(node.lstrip("/")) for node in NODES)


def _document(text: str) -> dict[str, Any] | None:
    """The child's last line; None if that is not what it should be."""
    lines = text.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _judged(found: dict[str, Any]) -> Finding:
    """What is wrong with them, the worst first."""
    listed = found["gpus"]
    told = " ".join(found["warnings"])
    if not listed:
        return broken(
            "this system shows a GPU, and torch can use none",
            told or "CUDA_VISIBLE_DEVICES may hide all of them, or the driver is missing.",
            "A driver that is too old for this torch: update it, or install a wheel of torch for "
            "an older CUDA.",
        )
    names = ", ".join(dict.fromkeys(gpu["name"] for gpu in listed))
    text = f"{plural(len(listed), 'GPU')}: {names}, {short_size(listed[0]['memory'])} each"
    if found["error"]:
        return broken(f"{text}, and the first kernel fails", found["error"], _newer(found))
    if told:
        return warning(text, told, _newer(found))
    return fine(text)


def _newer(found: dict[str, Any]) -> str:
    made = ", ".join(found["archs"])
    return f"This torch has kernels for {made}: install a wheel that has them for this GPU."


def hidden(around: Surroundings) -> Finding:
    """CUDA_VISIBLE_DEVICES, which hides GPUs and counts the rest anew."""
    value = around.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return skipped("CUDA_VISIBLE_DEVICES is not set")
    names = [name.strip() for name in value.split(",")]
    if names in ([""], ["-1"], ["NoDevFiles"]):
        return warning(
            f"CUDA_VISIBLE_DEVICES={value!r} hides every GPU",
            "torch sees none, whatever there is.",
            "unset CUDA_VISIBLE_DEVICES",
        )
    if len(set(names)) < len(names):
        return broken(
            f"CUDA_VISIBLE_DEVICES={value} names a GPU twice",
            "CUDA shows none at all then.",
            "Name each GPU once.",
        )
    if "-1" in names:
        kept = names.index("-1")
        return warning(
            f"CUDA_VISIBLE_DEVICES={value}: all after -1 are hidden",
            f"{plural(kept, 'GPU')} can be used.",
            "Leave -1 out.",
        )
    return fine(f"CUDA_VISIBLE_DEVICES={value}: {plural(len(names), 'GPU')} at most")


def driver(around: Surroundings) -> Finding:
    """The driver, and modes of the GPUs that stand in the way."""
    cards = smi(around)
    if not cards:
        return skipped("nvidia-smi shows nothing")
    text = f"driver {cards[0]['driver_version']}"
    exclusive = sum(card["compute_mode"].lower().startswith("exclusive") for card in cards)
    if exclusive:
        return warning(
            f"{text}; {plural(exclusive, 'GPU')} in exclusive mode",
            "One process at a time may use such a GPU: ranks that share it fail.",
            "nvidia-smi -c 0",
        )
    if any(card["mig.mode.current"].lower() == "enabled" for card in cards):
        return warning(
            f"{text}; MIG is enabled",
            "A GPU is cut into parts, a process sees one part only, and parts have no peer "
            "access: NCCL runs one rank on it.",
            "Give each rank its part (CUDA_VISIBLE_DEVICES=MIG-…), or switch MIG off: nvidia-smi "
            "-mig 0.",
        )
    return fine(text)


def smi(around: Surroundings) -> list[dict[str, str]]:
    """The GPUs that nvidia-smi shows, by ``QUERY``; none where there is no such program."""
    program = around.which("nvidia-smi")
    if program is None or not _shown(around):
        return []
    query = f"--query-gpu={','.join(QUERY)}"
    answer = around.ask([str(program), query, "--format=csv,noheader"], 10.0)
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.text.splitlines()]
    whole = [row for row in rows if len(row) == len(QUERY) and answer.status == 0]
    return [dict(zip(QUERY, row, strict=True)) for row in whole]
