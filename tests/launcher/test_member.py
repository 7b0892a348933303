from __future__ import annotations

import multiprocessing
import pickle
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import pytest

from distdemo.launcher.messages import Receiver, Sender, dumps
from distdemo.launcher.records import Died, Phase, Raised, Returned, Stopped, TimedOut
from distdemo.launcher.workers import KEPT_OUTPUT, Worker


class Process(BaseProcess):
    """As much of a process as a worker looks at."""

    exitcode: int | None = None

    def __init__(self) -> None:
        """None was started."""

    def join(self, timeout: float | None = None) -> None:
        """It has ended already, or never will."""


class End:
    """A worker and the rank's end of its pipes."""

    def __init__(self) -> None:
        self.reader, self.writer = multiprocessing.Pipe(duplex=False)
        self.output, self.pen = multiprocessing.Pipe(duplex=False)
        self.process = Process()
        receiver = Receiver(self.reader.fileno())
        began = time.monotonic()
        self.worker = Worker(3, began, self.process, self.reader, receiver, self.output)
        self.sender = Sender(self.writer.fileno())

    def die(self, exit_code: int) -> None:
        self.process.exitcode = exit_code
        self.writer.close()

    def ends(self) -> list[Connection]:
        return [self.reader, self.writer, self.output, self.pen]


@pytest.fixture
def end() -> Iterator[End]:
    made = End()
    yield made
    for connection in made.ends():
        connection.close()


def test_phases_are_noted_on_the_clock_of_the_world(end: End) -> None:
    end.sender.send("phase", 0, "started", end.worker.began + 1.5)
    assert end.worker.hear()
    assert end.worker.phase == Phase(0, "started", end.worker.phase.at)
    assert end.worker.phase.at == pytest.approx(1.5)
    assert end.worker.outcome is None


def test_a_value_is_returned(end: End) -> None:
    end.sender.send("returned", end.worker.began + 2, dumps({"loss": 0.5}))
    end.worker.hear()
    outcome = end.worker.final(late=False)
    assert isinstance(outcome, Returned)
    assert (outcome.rank, outcome.value) == (3, {"loss": 0.5})
    assert outcome.at == pytest.approx(2)


def test_a_value_that_can_not_be_read_back_is_an_error_of_that_rank(end: End) -> None:
    unreadable = pickle.dumps(len).replace(b"len", b"nel")
    end.sender.send("returned", end.worker.began, unreadable)
    end.worker.hear()
    outcome = end.worker.final(late=False)
    assert isinstance(outcome, Raised)
    assert "can't be read back" in outcome.message


CLOSED = "Connection closed by peer"


@pytest.mark.parametrize(
    ("text", "backends", "missing", "consequence"),
    [
        ("no", False, (), False),
        ("no", True, (), False),
        (CLOSED, True, (), True),
        (CLOSED, False, (), False),  # the user's own error may say so too
        ("Ranks 1 failed to pass monitoredBarrier", True, (1,), True),
    ],
)
def test_an_error_is_told_from_a_consequence(
    text: str, backends: bool, missing: tuple[int, ...], consequence: bool, end: End
) -> None:
    end.sender.send(
        "raised", end.worker.began, "RuntimeError", text, "Trace", backends, missing, "Excerpt"
    )
    end.worker.hear()
    outcome = end.worker.final(late=False)
    assert isinstance(outcome, Raised)
    assert (outcome.type, outcome.message, outcome.traceback) == ("RuntimeError", text, "Trace")
    assert (outcome.consequence, outcome.missing) == (consequence, missing)


def test_what_a_rank_said_as_it_left_is_kept(end: End) -> None:
    end.sender.send("exited", end.worker.began, 1, "no data")
    end.worker.hear()
    outcome = end.worker.final(late=False)
    assert isinstance(outcome, Died)
    assert (outcome.exit_code, outcome.message) == (1, "no data")


def test_told_values_reach_whoever_listens_and_end_nothing(end: End) -> None:
    heard: list[tuple[int, object]] = []
    end.worker.told = lambda rank, value: heard.append((rank, value))
    for value in (1, "two"):
        end.sender.send("told", end.worker.began, dumps(value))
    end.worker.hear()
    assert heard == [(3, 1), (3, "two")]
    assert end.worker.outcome is None


def leave() -> None:
    raise SystemExit(7)


class Leaves:
    """Ends the process that reads it, if that lets it."""

    def __reduce__(self) -> tuple[object, tuple[()]]:
        return leave, ()


@pytest.mark.parametrize("kind", ["returned", "told"])
def test_a_value_that_ends_its_reader_is_an_error_of_its_rank(kind: str, end: End) -> None:
    end.worker.told = lambda rank, value: None
    end.sender.send(kind, end.worker.began, dumps(Leaves()))
    end.sender.send("returned", end.worker.began, dumps(None))  # it does not know
    end.worker.hear()
    outcome = end.worker.final(late=False)
    assert isinstance(outcome, Raised)
    assert outcome.type == "SystemExit"
    assert f"the value that it {kind} can't be read back" in outcome.message


@pytest.mark.parametrize(
    ("exit_code", "number", "code"), [(-signal.SIGKILL, signal.SIGKILL, None), (3, None, 3)]
)
def test_a_death_without_a_word_is_noticed_by_the_closed_pipe(
    exit_code: int, number: int | None, code: int | None, end: End
) -> None:
    end.die(exit_code)
    assert not end.worker.hear()
    outcome = end.worker.final(late=False)
    assert isinstance(outcome, Died)
    assert (outcome.signal, outcome.exit_code) == (number, code)


def test_a_death_is_noticed_although_a_child_of_the_rank_holds_its_pipe(end: End) -> None:
    end.process.exitcode = 3
    end.worker.look()
    assert isinstance(end.worker.outcome, Died)


def test_last_words_count_more_than_the_death_after_them(end: End) -> None:
    end.sender.send("returned", end.worker.began, dumps(7))
    end.die(-signal.SIGSEGV)
    end.worker.hear()
    assert isinstance(end.worker.outcome, Returned)


def test_without_an_outcome_a_rank_was_late_or_was_stopped(end: End) -> None:
    assert isinstance(end.worker.final(late=True), TimedOut)
    assert isinstance(end.worker.final(late=False), Stopped)


def test_the_last_of_what_a_rank_wrote_is_kept(end: End) -> None:
    written = b"x" * 40_000
    for _ in range(3):
        end.pen._send(written)  # type: ignore[attr-defined]  # raw bytes, as a rank's print
        assert end.worker.listen()
    end.pen._send(b"last \xff")  # type: ignore[attr-defined]
    end.worker.listen()
    output = end.worker.final(late=False).output
    assert len(output) == KEPT_OUTPUT
    assert output.endswith("last \N{REPLACEMENT CHARACTER}")
