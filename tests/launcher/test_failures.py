"""Descriptions of exceptions in a rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from distdemo.launcher.failures import has_lost_peer, is_from_backend


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


def test_what_an_error_states_of_its_peer_counts_more_than_what_it_says() -> None:
    for stated in (True, False):
        error = dist.DistBackendError("Connection closed by peer")
        assert has_lost_peer(error)
        setattr(error, "lost_peer", stated)  # noqa: B010 - as of the MPI backend's class
        assert has_lost_peer(error) is stated
    refused = RuntimeError("never raised: connection refused")
    setattr(refused, "lost_peer", True)  # noqa: B010
    assert not has_lost_peer(refused)
