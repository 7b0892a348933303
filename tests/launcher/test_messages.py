"""Messages between a rank and the launcher, and pickled values."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from importlib.machinery import ModuleSpec
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from distdemo.errors import UsageError
from distdemo.launcher import messages
from distdemo.launcher.messages import (
    Completed,
    Failed,
    PhaseReached,
    Receiver,
    Sender,
    ValueSent,
    dumps,
    dumps_work,
    main_can_be_imported,
)
from distdemo.launcher.records import Died, Raised, Returned
from distdemo.launcher.start_method import StartMethod
from distdemo.launcher.worker import MAX_OUTPUT_BYTES, Worker

SPAWN = StartMethod("spawn", "as requested")
LARGE = Completed(os.urandom(3_000_000), 1.5)  # more than any pipe holds


@pytest.fixture
def pipe():
    reader, writer = multiprocessing.Pipe(duplex=False)
    yield reader, writer
    reader.close()
    writer.close()


def test_messages_of_any_size_arrive_whole_and_in_order_and_the_end_after_the_last(pipe):
    reader, writer = pipe
    sender, receiver = Sender(writer.fileno()), Receiver(reader.fileno())
    assert receiver.receive() == []  # never blocks
    sent: list[Any] = [
        PhaseReached(0, "started", 1.5),
        ValueSent(b"value"),
        LARGE,
        Completed(b"value", 2.5),
    ]

    def send():
        for message in sent:
            sender.send(message)
        writer.close()

    thread = threading.Thread(target=send)
    thread.start()
    arrived: list[Any] = []
    while not receiver.closed:
        arrived += receiver.receive()
    thread.join()
    assert arrived == sent


def test_half_a_message_of_a_rank_that_died_is_no_message(pipe):
    reader, writer = pipe
    receiver = Receiver(reader.fileno())
    writer._send((10**6).to_bytes(8, "big") + b"half")
    writer.close()
    assert receiver.receive() == []
    assert receiver.closed


def test_a_pipe_that_the_program_has_closed_is_noticed(pipe):
    _, writer = pipe
    sender = Sender(writer.fileno())
    os.dup2(2, writer.fileno())
    assert sender.lost
    with pytest.raises(BrokenPipeError):
        sender.send(ValueSent(b""))


# ------------------------------------------------------------------------------------------ pickles


def test_tensors_travel_by_value_and_a_row_without_its_matrix():
    matrix = torch.arange(1_000_000.0).reshape(1000, 1000)
    payload = dumps({"row": matrix[3], "column": matrix[:, 3]})
    assert len(payload) < 20_000
    copy = pickle.loads(payload)  # noqa: S301 - our own
    assert torch.equal(copy["row"], matrix[3])
    assert torch.equal(copy["column"], matrix[:, 3])
    part = torch.ones(10, requires_grad=True)[:2].detach().requires_grad_()
    assert pickle.loads(dumps(part)).requires_grad  # noqa: S301 - our own


def test_other_tensors_travel_as_they_are():
    for tensor in (
        torch.ones(3).expand(1000, 3),
        torch.eye(3).to_sparse(),
        torch.tensor(5),
        torch.empty(0),
        torch.nn.Parameter(torch.ones(4)),
    ):
        copy = pickle.loads(dumps(tensor))  # noqa: S301 - our own
        assert type(copy) is type(tensor)
        assert torch.equal(copy.to_dense(), tensor.to_dense())


def test_a_tensor_of_another_device_arrives_on_the_cpu():
    # The meta device is the only accelerator that every machine has. It holds no numbers, so
    # torch's error shows that it was asked to copy them.
    with pytest.raises(NotImplementedError, match="meta"):
        dumps(torch.empty(2, device="meta"))


def work():
    """Function that the test assigns to a fake main module."""


def test_work_that_a_new_process_could_not_find_is_not_pickled(monkeypatch):
    monkeypatch.setattr(work, "__module__", "__main__")
    for file, name, found in (
        (None, None, False),  # a prompt
        (__file__, None, True),
        ("<stdin>", None, False),
        (__file__, "train", True),  # python -m
        (__file__, "package.__main__", False),
    ):
        module = ModuleType("__main__")
        vars(module)["work"] = work
        if file is not None:
            module.__file__ = file
        if name is not None:
            module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, "__main__", module)
        assert main_can_be_imported() is found
        for has_cloudpickle in (True, False):
            monkeypatch.setattr(messages, "has_cloudpickle", lambda has=has_cloudpickle: has)
            if file == "<stdin>":
                with pytest.raises(UsageError, match="can't import this program"):
                    dumps_work(print, (Path,), SPAWN)
                continue
            dumps_work(print, (Path,), SPAWN)
            if found or has_cloudpickle:
                dumps_work(work, (), SPAWN)
            else:
                with pytest.raises(UsageError, match="was defined in the main program"):
                    dumps_work(print, (work,), SPAWN)


# -------------------------------------------------------------------------------------- the worker


class Process(BaseProcess):
    """Fake process with the attributes that a worker uses."""

    exitcode: int | None = None

    def __init__(self):
        """Do nothing: no process was started."""

    def join(self, timeout=None):
        """Do nothing: there is nothing to wait for."""


class Watched(Worker):
    """Worker with the rank's ends of the pipes."""

    sender: Any
    writer: Any
    output_writer: Any


@pytest.fixture
def worker():
    """Worker of rank 3, with the rank's ends of the pipes."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    output, output_writer = multiprocessing.Pipe(duplex=False)
    os.set_blocking(output.fileno(), False)
    made = Watched(3, time.monotonic(), Process(), reader, Receiver(reader.fileno()), output)
    made.sender, made.writer, made.output_writer = Sender(writer.fileno()), writer, output_writer
    yield made
    for end in (reader, writer, output, output_writer):
        end.close()


def test_what_a_rank_says_gets_its_phase_and_its_moment_on_the_clock_of_the_world(worker):
    worker.sender.send(PhaseReached(0, "started", worker.began + 1.5))
    assert worker.receive(None)
    assert (worker.phase.name, worker.phase.at) == ("started", pytest.approx(1.5))
    assert worker.outcome is None
    raised = Raised(rank=3, at=worker.began + 2, type="ValueError", message="no", traceback="T")
    worker.sender.send(Failed(raised))
    worker.receive(None)
    failed: Any = worker.outcome
    assert (failed.phase.name, failed.at) == ("started", pytest.approx(2))


def leave():
    raise SystemExit(7)


class Leaves:
    """Object whose unpickling raises `SystemExit`."""

    def __reduce__(self):
        return leave, ()


def test_a_value_that_can_not_be_read_is_an_error_of_its_rank(worker):
    worker.sender.send(Completed(dumps(Leaves()), worker.began))
    worker.sender.send(Completed(dumps(None), worker.began))  # the rank continues
    worker.receive(None)
    assert worker.outcome.type == "SystemExit"
    assert "the value that it returned can't be unpickled" in worker.outcome.message


@pytest.mark.parametrize("held", [False, True], ids=["closed pipe", "a child holds its pipe"])
def test_a_death_without_a_word_is_noticed(held, worker):
    worker.process.exitcode = -signal.SIGKILL if held else 3
    if held:
        assert worker.check_exit(None)
    else:
        worker.writer.close()
        assert not worker.receive(None)
    assert isinstance(worker.outcome, Died)
    expected = (signal.SIGKILL, None) if held else (None, 3)
    assert (worker.outcome.signal, worker.outcome.exit_code) == expected


def test_last_words_count_more_than_the_death_after_them(worker):
    worker.sender.send(Completed(dumps(7), worker.began))
    worker.process.exitcode = -signal.SIGSEGV
    worker.writer.close()
    worker.receive(None)
    assert isinstance(worker.outcome, Returned)


def test_the_last_of_what_a_rank_wrote_is_kept(worker):
    for _ in range(3):
        worker.output_writer._send(b"x" * 40_000)
        assert worker.read()
    assert worker.read() is None
    worker.output_writer._send(b"last \xff")
    worker.read()
    output = worker.final(late=False).output
    assert len(output) == MAX_OUTPUT_BYTES
    assert output.endswith("last \N{REPLACEMENT CHARACTER}")
