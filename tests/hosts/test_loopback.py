"""Loopback that is down."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hosts.conftest import why_not

pytestmark = pytest.mark.processes
ASK = "from distdemo.launcher.limits import check_loopback; check_loopback()"


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize("change", ["true", "ip link set lo up"])
def test_loopback_that_is_down_is_refused(change: str) -> None:
    script = f'{change} && exec "$0" -c "$1"'
    command = ["unshare", "--net", "sh", "-c", script, sys.executable, ASK]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ("127.0.0.1 can't be reached" in asked.stderr) is (change == "true")
