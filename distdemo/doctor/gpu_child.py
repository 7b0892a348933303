"""What torch sees of the GPUs, as JSON on standard output.

Runs in a process of its own (``python -m distdemo.doctor.gpu_child``), which may initialise CUDA:
a process that has done so can't fork ranks any more.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

from distdemo.launcher.torch_import import load_torch


def look() -> dict[str, Any]:
    """Return every GPU that torch can use, and torch's warnings."""
    load_torch()  # what it says of NumPy is none of the GPUs' business
    import torch

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        usable = torch.cuda.is_available()
        count = torch.cuda.device_count() if usable else 0
        gpus = [_gpu(torch.cuda.get_device_properties(index)) for index in range(count)]
        error = ""
        if count:
            try:
                torch.zeros(1, device="cuda:0").item()
            except RuntimeError as failure:
                error = str(failure).strip().splitlines()[0]
    return {
        "gpus": gpus,
        "archs": torch.cuda.get_arch_list() if usable else [],
        "error": error,
        "warnings": [str(each.message).strip() for each in told],
    }


def _gpu(found: Any) -> dict[str, Any]:  # noqa: ANN401 - a class without a public name
    return {
        "name": found.name,
        "memory": found.total_memory,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look()) + "\n")
