"""Descriptions of exceptions in a rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from distdemo.launcher.failures import is_from_backend


def error_of(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except Exception as error:  # returned to the test
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


def raises_by_type() -> None:
    raise dist.DistStoreError("wait timeout after 1ms, keys: /never")


def test_whose_error_it_is_whatever_it_says() -> None:
    # Within a call to C, such as handle.wait(), the innermost frame is also the user's.
    for call in (lambda: torch.ones(2) @ torch.ones(3), passes_on, raises_by_type):
        assert is_from_backend(error_of(call))
    for own in (raises_its_own, raises_from_the_backend, lambda: [*generates()], lambda: int("x")):
        assert not is_from_backend(error_of(own))
    assert not is_from_backend(RuntimeError("never raised: connection reset"))
