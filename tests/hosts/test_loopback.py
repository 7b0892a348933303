"""Loopback that is down."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hosts.conftest import why_not

pytestmark = pytest.mark.processes
ASK = "from distdemo.launcher.limits import loopback_problem as p; print(p())"


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize(
    ("change", "says"),
    [("true", "127.0.0.1 can't be reached: Network is unreachable"), ("ip link set lo up", "")],
)
def test_the_problem_of_loopback_is_the_real_one(change: str, says: str) -> None:
    script = f'{change} && exec "$0" -c "$1"'
    command = ["unshare", "--net", "sh", "-c", script, sys.executable, ASK]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert asked.stdout == f"{says}\n"
