"""Runs the whole suite as three ordinary pytests side by side: ``python tests/suite.py``.

Importing torch and starting commands keep one core busy at a time, and tests of ranks that hang
wait for a third of their time: so three shards keep two cores busy. They are processes and not the
workers of a plug-in, whose threads would keep the launcher from forking ranks from a test's own
process: that is what most users get.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from typing import IO

# Files and folders that take about a third of the time each, and all else, so that nothing is left
# out.
ONE = ("tests/cli",)
TWO = ("tests/unit", "tests/hosts", "tests/ranks/mpi", "tests/ranks/test_start_methods.py")
REST = ("tests", *(f"--ignore={each}" for each in (*ONE, *TWO)))
LIMIT = 900.0  # seconds for the whole; every test has a limit of its own
GRACE = 20.0  # seconds in which a stopped shard takes down what its test has started
SUMMARY = re.compile(r"^=+ (.+) in [\d.]+s.* =+$", re.MULTILINE)  # pytest's last line
COUNT = re.compile(r"(\d+) (passed|failed|skipped|error)")


@dataclass(frozen=True)
class Shard:
    """A pytest that is running, and the file that takes what it says."""

    name: str
    process: subprocess.Popen[bytes]
    output: IO[bytes]


def main() -> int:
    """The exit status: 0 if tests passed in every shard and none failed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    print("Three shards run side by side; each is shown when it has ended.", flush=True)
    until = time.monotonic() + LIMIT
    shards = [start(arguments) for arguments in (ONE, TWO, REST)]
    total = Counter(passed=0, failed=0, skipped=0)
    for shard in shards:
        try:
            shard.process.wait(max(0.0, until - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as cause:
            print(f"Stopped by {type(cause).__name__}.", flush=True)
            stop([each.process for each in shards if each.process.poll() is None])
        total.update(told(shard))
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**total), flush=True)
    return min(total["failed"], 1)


def start(arguments: tuple[str, ...]) -> Shard:
    """Start a shard in a session of its own: Ctrl-C reaches it through us, and once."""
    # Without bytecode each command that a test starts would compile the whole package again.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    # No test asks what was logged, and keeping that takes half a millisecond a test.
    without = ("-p", "no:cacheprovider", "-p", "no:logging")
    command = [sys.executable, "-m", "pytest", *without, *arguments]
    output = tempfile.TemporaryFile()  # noqa: SIM115 - it is read when the shard has ended
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )
    return Shard(" ".join(arguments), process, output)


def interrupt(*_: object) -> None:
    """Take SIGTERM as Ctrl-C, and only the first of either."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def stop(running: list[subprocess.Popen[bytes]]) -> None:
    """Ask them to end, as Ctrl-C does; kill those that don't, with all that they have started."""
    for process in running:
        process.send_signal(signal.SIGINT)
    until = time.monotonic() + GRACE
    for process in running:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def told(shard: Shard) -> Counter[str]:
    """Print what a shard said, and count; one that ended badly without a failure counts as one."""
    shard.output.seek(0)
    text = shard.output.read().decode(errors="replace").rstrip()
    print(text, flush=True)
    summary = ["", *SUMMARY.findall(text)][-1]
    found = Counter({word: int(n) for n, word in COUNT.findall(summary)})
    failed, status = found["failed"] + found["error"], shard.process.returncode
    if not failed and (status or not found["passed"]):
        print(f"{shard.name}: exit status {status}, {found['passed']} tests passed.", flush=True)
        failed = 1
    return Counter(passed=found["passed"], failed=failed, skipped=found["skipped"])


if __name__ == "__main__":
    sys.exit(main())
