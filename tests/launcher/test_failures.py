"""What a rank says of an exception."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist

from distdemo.launcher.failures import excerpt, is_backends, missing_ranks


def error_of(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
        return error
    raise AssertionError("it did not raise")


def raises_its_own() -> None:
    raise RuntimeError("timed out waiting for the database: connection refused")


def raises_from_the_backend() -> None:
    try:
        dist.get_rank(object())  # type: ignore[arg-type]
    except Exception as error:
        raise RuntimeError("connection reset") from error


def passes_on() -> None:
    try:
        torch.ones(2) @ torch.ones(3)
    except RuntimeError as error:
        error.args = (*error.args, "seen")
        raise


def generates() -> Iterator[int]:
    raises_its_own()
    yield 1


@pytest.mark.parametrize("call", [raises_its_own, raises_from_the_backend, lambda: [*generates()]])
def test_what_the_user_raises_is_the_user_s_whatever_it_says(call: Callable[[], object]) -> None:
    assert not is_backends(error_of(call))


@pytest.mark.parametrize("call", [lambda: torch.ones(2) @ torch.ones(3), passes_on])
def test_what_is_raised_within_a_call_to_c_may_be_the_backend_s(call: Callable[[], object]) -> None:
    # Such as handle.wait(): its frame is the user's, and so it looks like this.
    assert is_backends(error_of(call))


def test_other_errors_are_not_the_backend_s() -> None:
    assert not is_backends(error_of(lambda: int("x")))
    assert not is_backends(error_of(lambda: dist.get_rank(object())))  # type: ignore[arg-type]
    assert not is_backends(RuntimeError("never raised: connection reset"))


def test_errors_of_torch_distributed_are_the_backend_s_by_their_type() -> None:
    def wait() -> None:
        raise dist.DistStoreError("wait timeout after 1ms, keys: /never")

    assert is_backends(error_of(wait))


def test_nobody_is_missing_where_no_monitored_barrier_failed() -> None:
    def lie() -> None:
        raise RuntimeError("Rank 2 failed to pass monitoredBarrier in 600 ms")

    assert missing_ranks(error_of(lie)) == ()
    assert missing_ranks(error_of(passes_on)) == ()
    assert missing_ranks(ValueError("Rank 2 failed to pass monitoredBarrier in 600 ms")) == ()


# ------------------------------------------------------------------------------------ tracebacks


HERE = f'File "{__file__}"'


def told(work):
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever it is
        work()
    return excerpt(caught.value)


def test_the_frames_of_libraries_are_left_out():
    def load():
        json.loads("[1,")

    text = told(load)
    assert HERE in text
    assert "json.loads" in text  # the user's line
    assert "decoder.py" not in text
    assert text.strip().endswith("Expecting value: line 1 column 4 (char 3)")


def test_also_of_what_it_came_from():
    def load():
        try:
            json.loads("[1,")
        except ValueError as error:
            raise KeyError("no data") from error

    text = told(load)
    assert text.count(HERE) >= 2
    assert "direct cause" in text
    assert "decoder.py" not in text


def test_an_error_without_a_line_of_the_users_keeps_all():
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("[1,")
    trace = caught.value.__traceback__
    assert trace is not None
    caught.value.__traceback__ = trace.tb_next  # as if a library had called it
    assert "decoder.py" in excerpt(caught.value)


def test_thousands_of_errors_that_came_from_each_other_end():
    error: BaseException = ValueError("the first")
    for number in range(3000):
        later = KeyError(number)
        later.__cause__ = error
        error = later
    assert "KeyError: 2999" in excerpt(error)


def test_errors_that_hold_each_other_end():
    error = ValueError("one")
    error.__context__ = KeyError("two")
    error.__context__.__context__ = error
    assert "ValueError: one" in excerpt(error)
