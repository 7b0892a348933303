"""CPU time that reading torch's flight recorder takes, as it is read for calls over NCCL.

Two ranks make functional all_reduces over gloo, 1,000 a second, and all of them are read from the
flight recorder. The time is that of the thread that reads; while it makes a dump, no other thread
runs Python, so the longest dump is shown, too.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rounds import PYTHON, run

RATE = 1000  # calls a second
SECONDS = 10


def program(seconds: int) -> None:
    """Make the calls; rank 0 prints the share of one core that the thread took."""
    import torch
    import torch.distributed as dist
    from torch._C import _distributed_c10d as cpp

    functional: Any = importlib.import_module("torch.distributed._functional_collectives")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dumps = []
    plain: Any = vars(cpp)["_dump_fr_trace"]

    def dump(*args: object) -> bytes:
        began = time.perf_counter()
        data: bytes = plain(*args)
        dumps.append(time.perf_counter() - began)
        return data

    setattr(cpp, "_dump_fr_trace", dump)  # noqa: B010 - mypy knows no such name
    tensor = torch.ones(4)
    began = time.perf_counter()
    for number in range(RATE * seconds):
        functional.wait_tensor(functional.all_reduce(tensor, "sum", dist.group.WORLD))
        time.sleep(max(0.0, began + number / RATE - time.perf_counter()))
    took = time.perf_counter() - began
    (reader,) = (one for one in threading.enumerate() if one.name == "distdemo-flight")
    used = int(Path(f"/proc/self/task/{reader.native_id}/schedstat").read_text().split()[0]) / 1e9
    if dist.get_rank() == 0:
        facts = {"rate": RATE * seconds / took, "share": used / took}
        print(json.dumps(facts | {"dumps": len(dumps) / took, "longest": max(dumps)}))
    dist.barrier()
    dist.destroy_process_group()


def main(seconds: int) -> None:
    """Run the program with several numbers of calls that torch keeps."""
    for kept in (500, 1000, 2000, 4000):
        options = ("-n", "2", "--record-calls", str(kept), "--format", "json")
        command = (PYTHON, "-m", "distdemo", "run", __file__, *options, "--", "rank", str(seconds))
        document = json.loads(run(command, env={**os.environ, "DISTDEMO_FLIGHT": "both"}))
        facts = json.loads(document["ranks"][0]["output"].strip().splitlines()[-1])
        gaps = "; calls were lost" if document.get("incomplete") else ""
        print(
            f"{kept} calls kept: {facts['share']:.1%} of a core at {facts['rate']:.0f} calls a "
            f"second, {facts['dumps']:.1f} dumps a second, the longest {1e3 * facts['longest']:.0f}"
            f" ms{gaps}"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        program(int(sys.argv[2]))
    else:
        main(1 if "--smoke" in sys.argv else SECONDS)
