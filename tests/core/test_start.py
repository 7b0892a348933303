"""Check that help, versions and usage errors never import torch."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

pytestmark = pytest.mark.processes
# Runs each argument as a command line, all in one process; the status of each, and whether torch is
# loaded after it, are the last line of standard error.
CHECK = """
import json, os, sys
import distdemo
assert {"torch", "rich", "typer"}.isdisjoint(sys.modules), "import distdemo"
import distdemo.ops, distdemo.backends, distdemo.demo.records, distdemo.demo.explain
assert {"torch", "rich", "typer"}.isdisjoint(sys.modules), "the records"
from distdemo.cli.main import run
run(["--help"])
assert not [name for name in sys.modules if name.endswith(".command")], "the list of commands"
ends = []
for line in sys.argv[1:]:
    ends.append([line, run(line.split()), "torch" in sys.modules])
distdemo.launch
assert {"torch", "psutil"}.isdisjoint(sys.modules), "distdemo.launch"
os.environ["TORCH_DISTRIBUTED_DEBUG"] = "junk"
sys.stderr.write("\\n")
assert run(["all-reduce", "-n", "2"]) == 2
sys.stderr.write(json.dumps(ends))
"""
WITHOUT_TORCH = {
    "--help": 0,
    "--version": 0,
    "all-reduce --help": 0,
    "p2p -h": 0,
    "ops": 0,
    "explain all-gather": 0,
    "bench links --help": 0,
    "bench all -b ten": 2,
    "no-such-command": 2,
    "doctor --only nowhere": 2,
    "all-reduce --root 1": 2,
    "all-reduce --backend nccl": 2,
    "all-reduce --dtype int16 --format json": 2,
}


def test_torch_is_not_imported_nor_what_other_commands_need_and_may_refuse_a_variable():
    command = [sys.executable, "-c", CHECK, *WITHOUT_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *lines, ends = done.stderr.splitlines()
    assert "torch can't be imported." in lines
    assert "The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL." in lines
    assert json.loads(ends) == [[line, status, False] for line, status in WITHOUT_TORCH.items()]
    assert f"torch {version('torch').split('+')[0]}" in done.stdout


def test_psutil_is_not_imported_before_the_ranks_or_by_them():
    line = [sys.executable, "-X", "importtime", "-m", "distdemo", "all-reduce", "-n", "2"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert " distdemo.platform.linux\n" in done.stderr
    assert "psutil" not in done.stderr
