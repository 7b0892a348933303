"""Running all checks, and queries of the real system."""

from __future__ import annotations

import socket
import threading
from typing import Any

from helpers import PATIENCE, wait_until

from distdemo.doctor import checks, system
from distdemo.doctor.checks import CHECKS, Check, examine
from distdemo.doctor.records import TOPICS, fine
from distdemo.doctor.system import Answer, ProgramRunner
from distdemo.errors import UsageError
from distdemo.measure.environment import cores


def test_a_healthy_machine_has_no_warning(make_system: Any) -> None:
    report = examine(make_system())
    assert report.ok
    assert report.host == "node"
    assert [f for f in report.findings if f.level in ("warning", "broken")] == []
    names = [check.name for check in CHECKS]
    assert [finding.check for finding in report.findings] == names
    assert len(set(names)) == len(names)
    assert list(dict.fromkeys(check.topic for check in CHECKS)) == list(TOPICS)


def test_missing_torch_is_one_finding(make_system: Any) -> None:
    def no_torch() -> Any:
        raise UsageError("torch can't be imported.", "No module named 'torch'.", "Install it.")

    report = examine(make_system(torch=no_torch))
    (broken,) = [finding for finding in report.findings if finding.level == "broken"]
    assert broken.check == "torch"
    assert broken.why == "No module named 'torch'."
    assert "world" not in [finding.check for finding in report.findings]
    only = examine(make_system(torch=no_torch), ("network", "memory"))
    assert {finding.topic for finding in only.findings} == {"network", "memory"}
    assert [finding for finding in only.findings if finding.level == "broken"] == []


def test_a_check_that_raises_or_hangs_becomes_a_warning(make_system: Any, monkeypatch: Any) -> None:
    never = threading.Event()

    def fail(_: Any) -> Any:
        raise KeyError("odd")

    def late() -> Any:
        never.wait()
        return fine("too late")

    some = (
        Check("failing", "network", "Failing", fail),
        Check("good", "network", "Good", lambda _: fine("well")),
    )
    monkeypatch.setattr(checks, "CHECKS", some)
    failing, good = examine(make_system()).findings
    monkeypatch.setattr(checks, "CHECKS", (Check("late", "network", "Late", lambda _: late()),))
    monkeypatch.setattr(checks, "CHECK_TIMEOUT_S", 0.05)
    (hanging,) = examine(make_system()).findings
    never.set()
    assert failing.level == hanging.level == "warning"
    assert "KeyError: 'odd'" in failing.what
    assert "longer than 0.05 s" in hanging.what
    assert good.level == "fine"


# --------------------------------------------------------------------------------- the real system


def test_a_command_runs_once_for_concurrent_callers(tmp_path: Any) -> None:
    run, file = ProgramRunner(), tmp_path / "asked"
    command = ["sh", "-c", f"echo x >> {file}; echo hello"]
    threads = [threading.Thread(target=run, args=(command, PATIENCE)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run(command, PATIENCE) == Answer(0, "hello\n")
    assert file.read_text() == "x\n"


def test_a_program_is_killed_after_its_timeout() -> None:
    run = ProgramRunner()
    assert run(["sleep", "60"], 0.05).late
    missing = run(["/no/such/program"], PATIENCE)
    assert missing.error
    assert not missing.late
    thread = threading.Thread(target=run, args=(["sleep", "61"], PATIENCE))
    thread.start()
    assert wait_until(lambda: bool(run.running))
    run.end()  # as after Ctrl-C
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert "was stopped" in run(["sleep", "62"], PATIENCE).error


def test_a_hanging_name_lookup_is_abandoned(monkeypatch: Any) -> None:
    never = threading.Event()

    def wait(*_: Any, **__: Any) -> Any:
        never.wait()
        return []

    monkeypatch.setattr(system, "NETWORK_TIMEOUT_S", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", wait)
    assert system.resolve("node").late
    never.set()


def test_queries_of_this_machine() -> None:
    assert system.resolve("127.0.0.1").found == ("127.0.0.1",)
    assert system.resolve("no such name").error
    assert system.loopback() == ("", "")
    assert any(each.loopback and "127.0.0.1" in each.addresses for each in system.interfaces())
    usable, total = cores()
    assert 1 <= usable <= total
    assert len(system.limits("fork")) == 3
    assert system.rlimit("RLIMIT_NOFILE") is not None
    assert system.rlimit("RLIMIT_OF_NOTHING") is None
    assert system.installed("typer")
    assert not system.installed("no-such-distribution")
