"""``python -m distdemo.postmortem.on_signal``."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import PATIENCE, wait_until

from distdemo.postmortem.files import read

pytestmark = pytest.mark.processes
PAGE = Path(__file__).parents[2] / "docs" / "postmortem.md"
MODULE = "distdemo.postmortem.on_signal"
PROGRAM = """
import sys
import torch
import torch.distributed as dist

store = dist.FileStore(sys.argv[1], 1)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
dist.all_reduce(torch.ones(4))
print("ready", flush=True)
store.wait(["never"])  # in C++, like a collective call
"""


def test_a_rank_that_is_in_a_call_dumps_its_calls_on_a_signal(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    words = [sys.executable, "-u", "-m", MODULE, "program.py", str(tmp_path / "store")]
    (pattern,) = re.findall(r"^\$ pkill -USR1 -f '(.+)'$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert re.search(pattern, " ".join(words))  # as torchrun starts a rank
    assert not re.search(pattern, f"python /venv/bin/torchrun -m {MODULE} program.py")
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as rank:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "ready\n"
        rank.send_signal(signal.SIGUSR1)
        assert wait_until((tmp_path / "dumps" / "rank_0").exists, PATIENCE)
        rank.kill()
    report = read([str(tmp_path / "dumps")])
    assert [(call.did, call.source_line) for call in report.calls] == [
        ("all_reduce(float32[4])", "program.py:8")
    ]
