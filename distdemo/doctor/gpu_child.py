"""Print the GPUs that torch sees as JSON.

Runs in a separate process (``python -m distdemo.doctor.gpu_child``) because it initialises CUDA,
after which a process can't fork ranks.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

from distdemo.launcher.torch_import import load_torch


def gpu_info() -> dict[str, Any]:
    """Return every GPU that torch can use, and torch's warnings."""
    load_torch()  # before warnings are recorded: torch may warn about NumPy
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        usable = torch.cuda.is_available()
        count = torch.cuda.device_count() if usable else 0
        gpus = [_gpu(torch.cuda.get_device_properties(index)) for index in range(count)]
        error = ""
        for name, index in {gpu["name"]: index for index, gpu in enumerate(gpus)}.items():
            try:
                torch.zeros(1, device=f"cuda:{index}").item()
            except RuntimeError as failure:
                error = error or f"{name}: {str(failure).strip().splitlines()[0]}"
    return {
        "gpus": gpus,
        "archs": torch.cuda.get_arch_list() if usable else [],
        "error": error,
        "warnings": [str(each.message).strip() for each in caught],
    }


def _gpu(found: Any) -> dict[str, Any]:
    return {
        "name": found.name,
        "memory": found.total_memory,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(gpu_info()) + "\n")
