"""The notes of one rank: fields of a call, and handles that are dropped. No ranks are started."""

from __future__ import annotations

import torch

from distdemo.calls.notes import Writer
from distdemo.calls.record.calls import METHODS, Fields, fields_of
from distdemo.calls.record.recorder import Recorder, Tracked


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
