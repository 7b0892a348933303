"""What must start at once: help, versions, errors and completion never import torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from helpers import commanded, distdemo

# Runs each argument as a command line, all in one process; the status of each, and what is loaded
# after it of what it does not need, are the last line of standard error.
CHECK = """
import json, sys
from distdemo.cli.main import run
NEEDLESS = ("torch",)
ends = []
for line in sys.argv[1:]:
    ends.append([line, run(line.split()), [name for name in NEEDLESS if name in sys.modules]])
sys.stderr.write("\\n" + json.dumps(ends))
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
    "all-reduce --root 1": 2,
    "all-reduce --world-size none": 2,
    "all-reduce --backend nccl": 2,
    "all-reduce --dtype int16 --format json": 2,
}


def test_torch_is_not_imported_nor_what_other_commands_need():
    command = [sys.executable, "-c", CHECK, *WITHOUT_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stderr.rpartition("\n")[2])
    assert ends == [[line, status, []] for line, status in WITHOUT_TORCH.items()]


def test_no_argument_shows_the_help():
    done = distdemo()
    assert done.returncode in (0, 2)
    assert "all-reduce" in done.stdout + done.stderr


def test_version_names_torch_too():
    import torch

    done = distdemo("--version")
    assert done.returncode == 0
    assert str(torch.__version__).split("+")[0] in done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("distdemo all-", "all-reduce"),
        ("distdemo explain sc", "scatter"),
        ("distdemo all-reduce --dtype bf", "bfloat16"),
        ("distdemo all-reduce --backend gl", "gloo"),
        ("distdemo reduce --reduce-op pro", "product"),
        ("distdemo p2p --pattern ri", "ring"),
    ],
)
def test_the_shell_completes_commands_ops_dtypes_and_backends(words, offered, tmp_path):
    environment = {
        "_DISTDEMO_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    with commanded([], tmp_path, env=environment) as run:
        code, out, err = run.finish()
    assert (code, err) == (0, "")
    assert offered in out.split()


def test_the_help_of_a_command_lists_only_what_it_takes(command):
    text = command("all-gather", "--help")[1]
    options = re.findall(r"^│ +\*? *(--[a-z-]+)", text, flags=re.MULTILINE)
    assert {"--dtype", "--sizes", "--group", "--async"} <= set(options)
    assert not {"--root", "--reduce-op", "--factor", "--straggler", "--splits"} & set(options)
