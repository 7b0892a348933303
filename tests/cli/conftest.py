"""What the tests of the command share."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture
def no_rank_starts(monkeypatch):
    """For command lines that can't be carried out."""
    from distdemo.launcher import workers

    def start(*_):
        pytest.fail("a rank was started")

    monkeypatch.setattr(workers.Workers, "start", start)


@pytest.fixture
def command(capfd):
    """Run a command line in this process: (exit code, stdout, stderr). Handlers are put back."""
    from distdemo.cli.main import run

    def call(*arguments):
        watched = (signal.SIGINT, signal.SIGTERM)
        before = [signal.getsignal(number) for number in watched]
        try:
            code = run(arguments)
        finally:
            for number, handler in zip(watched, before, strict=True):
                signal.signal(number, handler)
        out, err = capfd.readouterr()
        return code, out, err

    return call
