"""The notes of one rank: fields of a call, and handles that are dropped. No ranks are started."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed as dist

from distdemo.calls.notes import Writer
from distdemo.calls.record import frames
from distdemo.calls.record.calls import METHODS, Fields, fields_of
from distdemo.calls.record.recorder import Recorder, Tracked
from distdemo.observe import hooks


class Handle:
    """A handle that nobody but the program holds."""


def gathered(outputs: list[torch.Tensor]) -> Fields:
    """Return the fields of an all_gather into these tensors."""
    return fields_of(METHODS["allgather"], ([outputs], [torch.ones(4)]), {})


def test_outputs_that_share_memory_are_marked() -> None:
    buffer = torch.zeros(16)
    windows = [buffer[3 * number :][:4] for number in range(4)]
    one = torch.zeros(4)
    marks = {
        (fields.aliased, fields.overlapping)
        for fields in map(gathered, (windows, list(reversed(windows))))
    }
    assert marks == {(False, True)}
    assert gathered([one, buffer[:4], one]).aliased
    assert gathered([buffer[:8], buffer[8:], buffer[4:8]]).overlapping
    assert not gathered([buffer[:8], buffer[8:], buffer[4:8]]).aliased


def test_outputs_with_memory_of_their_own_are_not_marked() -> None:
    buffer = torch.zeros(16)
    for outputs in (
        list(buffer.chunk(4)),
        list(buffer.view(4, 4).unbind(1)),  # columns, whose elements alternate
        [buffer[:1], buffer[1:8], buffer[8:8], buffer[8:]],
        [torch.empty(0), torch.empty(0)],
        [torch.zeros(4) for _ in range(4)],
        [],
    ):
        fields = gathered(outputs)
        assert (fields.aliased, fields.overlapping) == (False, False)


def test_strides_are_recorded_where_a_backend_may_ignore_them() -> None:
    column = torch.ones(4, 4)[:, 1]
    assert fields_of(METHODS["allreduce"], ([column],), {}).data[3] == (4,)
    assert fields_of(METHODS["alltoall_base"], (column, torch.ones(4), [], []), {}).data[3] == (4,)
    assert fields_of(METHODS["allgather"], ([[column]], [column]), {}).data[3] == ()
    gather = fields_of(METHODS["gather"], ([[column]], [column], None), {})
    assert gather.data[3] == ((4,) if torch.__version__ < "2.9" else ())
    assert fields_of(METHODS["allreduce_coalesced"], ([column],), {}).data[3] == ()


def test_a_dropped_handle_of_a_message_is_noted_before_the_next_note() -> None:
    lines: list[bytes] = []
    recorder = Recorder(Writer(lines.append))
    message = Tracked(0, sync=False, from_any=False, message=True)
    dropped, waited, polled, collective = (Handle() for _ in range(4))
    recorder.track(dropped, message)
    recorder.track(waited, message._replace(number=1))
    recorder.track(polled, message._replace(number=2))
    recorder.track(collective, message._replace(number=3, message=False))
    recorder.record_wait(waited)
    recorder.record_poll(polled, True)
    del waited, polled, collective, dropped
    assert lines == [b"w 1\n", b"n 2\n"]
    recorder.record_return()
    recorder.record_end(None)
    assert lines[2:4] == [b"d 0\n", b"r\n"]
    assert len(lines) == 5


def test_a_handle_that_is_dropped_while_a_note_is_written_leaves_it_whole() -> None:
    handles = [Handle() for _ in range(3)]
    lines: list[bytes] = []

    def write(line: bytes) -> None:
        if handles:
            handles.pop()  # as the garbage collector may
        lines.append(line)

    recorder = Recorder(Writer(write))
    for number, handle in enumerate(handles):
        recorder.track(handle, Tracked(number, sync=False, from_any=False, message=True))
    del handle
    recorder.record_return()
    recorder.record_end(None)
    assert lines[:4] == [b"r\n", b"d 2\n", b"d 1\n", b"d 0\n"]
    assert lines[4].startswith(b"E ")


def recorder_of_lines() -> tuple[Recorder, list[str]]:
    """Return a recorder and the lines that it writes."""
    lines: list[str] = []
    return Recorder(Writer(lambda line: lines.append(line.decode().strip()))), lines


def fails() -> None:
    raise NotImplementedError("Cannot access storage of TensorWrapper")


def test_an_error_of_what_looks_at_tensors_is_noted_once_and_recording_goes_on() -> None:
    recorder, lines = recorder_of_lines()
    for _ in range(3):
        recorder.beside("buffers", fails)
    recorder.ledger.safely(fails)
    recorder.record_return()
    recorder.record_end(None)
    assert not recorder.off
    first, doubled, replicas, returned, repeated, _ = lines
    assert first.startswith('U {"what":"buffers","names":["NotImplementedError: Cannot access')
    assert replicas.startswith('U {"what":"replicas"')
    assert '"count":2' in doubled  # the rank might not reach its end
    assert (returned, '"count":3' in repeated) == ("r", True)


def test_parameters_that_cannot_be_read_are_named_once() -> None:
    recorder, lines = recorder_of_lines()
    sparse = torch.eye(3).to_sparse().requires_grad_()
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True), sparse], lr=0.1)
    for _ in range(2):
        recorder.ledger.before_step(optimizer)
    assert [line[0] for line in lines] == ["U", "P", "P", *"TSTS"]
    assert lines[0].startswith('U {"what":"tensors","names":["parameter 1 of SGD"]')


def test_outputs_without_memory_are_not_taken_for_one() -> None:
    marks: list[bool] = []

    def gather(row: torch.Tensor) -> torch.Tensor:
        fields = gathered([row, row + 1])
        marks.extend((fields.aliased, fields.overlapping))
        return row

    torch.vmap(gather)(torch.ones(2, 4))
    assert marks == [False, False]


def test_an_exception_names_a_lost_peer_only_if_the_backend_raised_it() -> None:
    def refused() -> None:
        raise ConnectionRefusedError("[Errno 111] Connection refused")

    def lost() -> None:
        raise dist.DistNetworkError("Connection closed by peer [127.0.0.1]:1234")

    for call, is_lost in ((refused, False), (lost, True)):
        recorder, lines = recorder_of_lines()
        try:
            call()
        except Exception as error:
            recorder.record_end(error)
        assert ('"lost_peer":true' in lines[-1]) is is_lost


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        ("/home/me/torch/distributed/fsdp/train.py", "user"),
        ("/home/me/distdemo/calls/record/train.py", "user"),
        (torch.nn.__file__, "torch"),
        (frames.__file__, "ours"),
        (f"{frames.__file__}{hooks.UNCOUNTED}", "ours"),
        ("<In[3]>", "user"),
    ],
)
def test_whose_a_file_is(file: str, owner: str) -> None:
    assert frames.owner_of(file) == owner


def test_a_hook_of_the_user_in_a_folder_named_torch_is_known() -> None:
    code = compile("ask()", "/home/me/torch/autograd/train.py", "exec")
    answers: list[bool] = []
    exec(code, {"ask": lambda: answers.append(frames.called_by_hook_of_user())})  # noqa: S102
    assert answers == [True]


def test_a_warning_within_a_hook_names_the_line_that_called_it() -> None:
    class Owner:
        def method(self) -> None:
            warnings.warn("old", FutureWarning, stacklevel=2)

    original = Owner.method

    def hook(self: Owner) -> None:
        original(self)

    hook.__code__ = hook.__code__.replace(co_filename=frames.__file__)
    Owner.method = hooks.uncounted(hook)  # type: ignore[method-assign]
    with pytest.warns(FutureWarning) as seen:
        Owner().method()
    assert [warning.filename for warning in seen] == [__file__]
