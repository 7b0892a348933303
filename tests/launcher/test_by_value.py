"""Functions that new processes can't import: of a notebook's cell, launched in a thread."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.processes


PROMPT = """
import threading, torch, torch.distributed as dist, distdemo
(torch.ones(300, 300) @ torch.ones(300, 300)).sum()
scale = torch.tensor(3)
class Pair:
    def __init__(self, rank, total): self.rank, self.total = rank, total
def work(rank, size):
    total = scale * rank
    dist.all_reduce(total)
    return Pair(rank, total.item())
def launch():
    pairs = distdemo.launch(work, world_size=2)
    print([(pair.rank, pair.total, type(pair) is Pair) for pair in pairs])
thread = threading.Thread(target=launch)
thread.start()
thread.join()
"""


def test_a_main_module_that_new_processes_can_not_import(start):
    """As that of a notebook, whose process has computed and can't be forked."""
    code, out, err = start("python", "-c", PROMPT).finish()
    assert (code, out) == (0, "[(0, 3, True), (1, 3, True)]\n"), err
