"""A stranger who reaches the ports of a joined world can only change its outcome."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from helpers import free_port, marked_processes, tcp_addresses, wait_until
from processes import Run, Start
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from distdemo.joined import messages

pytestmark = pytest.mark.processes
GROWTH_BYTES = 150 << 20  # of any process: together with torch that is below 300 MB
HELD_UP = ["barrier", "-n", "2", "--straggler", "1:600", "--timeout", "600", "--format", "json"]
GIB = 1 << 30

ENDED = b'{"kind": "ended", "world": 0, "started_s": 1.0, "outcome": '
FORGED = [  # test_messages.py has more of what is no message
    b"",
    b"[" * 60_000,
    b'{"kind": "hello", "host": "\\u001b[2J\\u202e"}',
    b'{"kind": "sent", "world": 0, "rank": 1, "value": {"type": "os:system", "value": "true"}}',
    ENDED + b'{"kind": "returned", "rank": 7}}',
    ENDED + b'{"kind": "stopped", "rank": 1, "at_s": 1e300}}',
    b'{"kind": "refused", "what": "\\u001b[2J"}',
    b'{"kind": "start", "world": 5, "digest": "0", "command": "x", "changes": {"0": ["/etc"]}}',
    b'{"kind": "stop", "world": 0, "reason": "other"}',
    b'{"kind": "exit", "code": -1}',
    b'{"kind": "gone"}',
]


def processes(runs: list[Run]) -> list[int]:
    return [pid for run in runs for pid in marked_processes(run.mark)]


def memory_of(pid: int, name: str) -> int:
    """Return a field of proc_pid_status(5) in bytes; 0 if the process has exited."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith(name)))
    return 0


def ports(runs: list[Run]) -> set[int]:
    """Return the ports on which any process of the world listens."""
    found = (tcp_addresses(pid, listening=True, ports=True) for pid in processes(runs))
    return {int(port, 16) for ports in found for port in ports}


def connect(port: int) -> Store:
    """Return a stranger's client of the store."""
    client = TCPStore("127.0.0.1", port, None, False, timedelta(seconds=10), wait_for_workers=False)
    return PrefixStore("distdemo/", client)


def forge(node: int, first: int) -> Callable[[int, list[Run]], None]:
    """Write every forged value as a message of this node, beginning with this one."""

    def attack(port: int, _: list[Run]) -> None:
        store = connect(port)
        for number, value in enumerate(FORGED[first:] + FORGED[:first]):
            store.set(f"node/{node}/{number}", value)  # type: ignore[arg-type]  # bytes, too
        store.add("changes", 1)

    return attack


def break_counters(port: int, _: list[Run]) -> None:
    store = connect(port)
    for key in ("changes", "alive/0", "alive/1", "claim/1"):
        store.set(key, "no number")


def send_garbage_without_end(store_port: int, runs: list[Run]) -> None:
    """Fill the store, and send up to 1 GiB without a newline to each port, while it accepts it."""
    store = connect(store_port)
    for number in range(128):
        store.set(f"forged/{number}", "x" * messages.MAX_BYTES)
    for port in sorted(ports(runs)):
        for piece in (b"A" * (1 << 20), bytes(1 << 20), os.urandom(1 << 20)):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as stranger:
                stranger.settimeout(1)
                for _ in range(GIB // len(piece)):
                    stranger.sendall(piece)


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(forge(0, FORGED.index(b'{"kind": "exit", "code": -1}')), id="orders"),
        pytest.param(forge(1, 2), id="reports"),
        break_counters,
        send_garbage_without_end,
    ],
)
def test_nothing_but_the_outcome_changes(
    start: Start, attack: Callable[[int, list[Run]], None]
) -> None:
    port = free_port()  # of the store
    runs = start.nodes(HELD_UP, port=port)
    with ExitStack() as stack:
        assert wait_until(lambda: len(ports(runs)) >= 3)  # the store's, and one per rank
        for each in sorted(ports(runs)):
            for _ in range(200):
                idle = stack.enter_context(socket.socket())
                idle.setblocking(False)
                idle.connect_ex(("127.0.0.1", each))
        before = {pid: memory_of(pid, "VmRSS") for pid in processes(runs)}
        peaks = dict(before)

        def ended() -> bool:
            for pid in processes(runs):
                peaks[pid] = max(peaks.get(pid, 0), memory_of(pid, "VmHWM"))
            return all(run.process.poll() is not None for run in runs)

        with suppress(RuntimeError):  # the world may end first
            attack(port, runs)
        if attack is send_garbage_without_end:
            assert not ended()
            runs[0].process.send_signal(signal.SIGINT)
        assert wait_until(ended)
        said = [run.finish() for run in runs]
        for run in runs:
            run.leaves_nothing()
    for code, out, err in said:
        assert code in (0, 1, 130), out + err
        assert "Traceback" not in err, err
        assert "\x1b" not in out + err
    assert json.loads(said[0][1])["command"] == "barrier"
    assert max(peak - before.get(pid, peak) for pid, peak in peaks.items()) < GROWTH_BYTES
