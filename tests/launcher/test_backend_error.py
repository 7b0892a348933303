from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist

from distdemo.launcher.failures import is_backends, missing_ranks


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
