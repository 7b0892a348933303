"""Loopback that is down, or that has another address."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hosts.conftest import why_not

pytestmark = pytest.mark.processes
ASK = "from distdemo.launcher.limits import loopback_problem as p; print(*p(), sep=', ')"
UP = "ip link set lo up"
WHY = "Cannot assign requested address"
MOVE = f"{UP} && ip addr del 127.0.0.1/8 dev lo && ip addr add"
CASES = (
    ("true", f"The loopback interface is down (Network is unreachable), As root: {UP}."),
    (
        f"{MOVE} 10.1.2.3/32 dev lo",
        f"No interface has the address 127.0.0.1 ({WHY}), As root: ip addr add 127.0.0.1/8 dev lo.",
    ),
    (f"{MOVE} 127.0.0.1/32 dev lo", ", "),
    (UP, ", "),
)


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize(("change", "says"), CASES)
def test_the_problem_of_loopback_is_the_real_one(change: str, says: str) -> None:
    script = f'{change} && exec "$0" -c "$1"'
    command = ["unshare", "--net", "sh", "-c", script, sys.executable, ASK]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert asked.stdout == f"{says}\n"
