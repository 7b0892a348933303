from __future__ import annotations

import os
import pickle
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch

from distdemo.launcher.messages import Receiver, Sender, dumps

Ends = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Ends]:
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        with suppress(OSError):  # a test may have closed it
            os.close(fd)


def frame(*message: object) -> bytes:
    payload = dumps(message)
    return struct.pack(">Q", len(payload)) + payload


def test_messages_arrive_whole_and_in_order(pipe: Ends) -> None:
    sender, receiver = Sender(pipe[1]), Receiver(pipe[0])
    sender.send("phase", 0, "started", 1.5)
    sender.send("returned", 2.5, b"value")
    assert receiver.receive() == [("phase", 0, "started", 1.5), ("returned", 2.5, b"value")]
    assert not receiver.closed


def test_an_empty_pipe_is_not_waited_for(pipe: Ends) -> None:
    receiver = Receiver(pipe[0])
    assert receiver.receive() == []
    assert not receiver.closed


def test_a_message_arrives_byte_by_byte(pipe: Ends) -> None:
    receiver = Receiver(pipe[0])
    whole = frame("phase", 3)
    for byte in whole[:-1]:
        os.write(pipe[1], bytes([byte]))
        assert receiver.receive() == []
    os.write(pipe[1], whole[-1:] + frame("next")[:5])
    assert receiver.receive() == [("phase", 3)]
    os.write(pipe[1], frame("next")[5:])
    assert receiver.receive() == [("next",)]


def test_a_message_larger_than_the_pipe_arrives_in_pieces(pipe: Ends) -> None:
    receiver = Receiver(pipe[0])
    value = os.urandom(3_000_000)
    whole = memoryview(frame("returned", value))
    arrived = []
    for at in range(0, len(whole), 50_000):
        os.write(pipe[1], whole[at : at + 50_000])
        arrived += receiver.receive()
    assert arrived == [("returned", value)]


def test_a_sender_waits_while_the_pipe_is_full(pipe: Ends) -> None:
    receiver = Receiver(pipe[0])
    value = bytes(3_000_000)
    thread = threading.Thread(target=Sender(pipe[1]).send, args=("returned", value))
    thread.start()
    arrived: list[tuple[object, ...]] = []
    while not arrived:
        arrived = receiver.receive()
    thread.join()
    assert arrived == [("returned", value)]


def test_a_closed_end_is_noticed_after_the_last_message(pipe: Ends) -> None:
    receiver = Receiver(pipe[0])
    Sender(pipe[1]).send("last")
    os.close(pipe[1])
    assert receiver.receive() == [("last",)]
    assert receiver.closed
    assert receiver.receive() == []


def test_half_a_message_of_a_rank_that_died_is_no_message(pipe: Ends) -> None:
    receiver = Receiver(pipe[0])
    os.write(pipe[1], frame("returned", "value")[:-3])
    os.close(pipe[1])
    assert receiver.receive() == []
    assert receiver.closed


def test_text_is_read_as_it_is_and_only_once(pipe: Ends) -> None:
    receiver = Receiver(pipe[0])
    os.write(pipe[1], 'Current thread\n  File "ä.py"\n'.encode() + b"\xff")
    assert receiver.receive_text() == 'Current thread\n  File "ä.py"\n\N{REPLACEMENT CHARACTER}'
    assert receiver.receive_text() == ""


def test_what_can_not_be_pickled_raises_and_sends_nothing(pipe: Ends) -> None:
    receiver = Receiver(pipe[0])
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        Sender(pipe[1]).send("returned", lambda: None)
    assert receiver.receive() == []


def test_tensors_travel_by_value() -> None:
    tensor = torch.arange(6).reshape(2, 3)
    copy = pickle.loads(dumps({"weights": tensor}))["weights"]  # noqa: S301 - our own
    tensor.zero_()
    assert copy.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_tensor_of_another_device_arrives_on_the_cpu() -> None:
    # The meta device is the one accelerator that every machine has; it holds no numbers, so
    # what torch says when it is asked to copy them is the proof that it was asked.
    with pytest.raises(NotImplementedError, match="meta"):
        dumps(torch.empty(2, device="meta"))


# ------------------------------------------------------------------------------ parts of tensors


def test_a_row_travels_without_the_matrix_that_it_is_of() -> None:
    matrix = torch.arange(1_000_000.0).reshape(1000, 1000)
    payload = dumps({"row": matrix[3], "column": matrix[:, 3]})
    assert len(payload) < 20_000
    copy = pickle.loads(payload)  # noqa: S301 - our own
    assert torch.equal(copy["row"], matrix[3])
    assert torch.equal(copy["column"], matrix[:, 3])


def test_a_part_keeps_whether_it_requires_a_gradient() -> None:
    part = torch.ones(10, requires_grad=True)[:2].detach().requires_grad_()
    assert pickle.loads(dumps(part)).requires_grad  # noqa: S301 - our own


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3).expand(1000, 3),
        torch.eye(3).to_sparse(),
        torch.tensor(5),
        torch.empty(0),
        torch.nn.Parameter(torch.ones(4)),
    ],
    ids=["expanded", "sparse", "scalar", "empty", "parameter"],
)
def test_other_tensors_travel_as_they_are(tensor: torch.Tensor) -> None:
    copy = pickle.loads(dumps(tensor))  # noqa: S301 - our own
    assert type(copy) is type(tensor)
    assert torch.equal(copy.to_dense(), tensor.to_dense())
