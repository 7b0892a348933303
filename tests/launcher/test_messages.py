"""Messages between a rank and the launcher, and pickled values."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import threading
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from distdemo.errors import UsageError
from distdemo.launcher import messages
from distdemo.launcher.messages import (
    Completed,
    PhaseReached,
    Receiver,
    Sender,
    ValueSent,
    dumps,
    dumps_work,
    main_can_be_imported,
)
from distdemo.launcher.start_method import StartMethod

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
