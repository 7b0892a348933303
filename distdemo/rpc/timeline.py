"""The caller's calls, written down one by one: whom, what, what came back, when, how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from distdemo.rpc.records import Call, Value, name_of

if TYPE_CHECKING:
    from torch.futures import Future

    from distdemo.launcher.rank import Rank

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Label:
    """Which call it is, and what has to come back."""

    callee: str
    kind: str
    what: str
    expected: Value


class Timeline:
    """The calls of one worker; its clock starts when this is made."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._caller = name_of(rank.rank)
        self._began = time.monotonic()
        self._calls: list[Call] = []

    @property
    def calls(self) -> tuple[Call, ...]:
        """In the order in which they were made."""
        return tuple(sorted(self._calls, key=lambda call: call.start))

    def call(
        self,
        label: Label,
        make: Callable[[], Result],
        tell: Callable[[Result], Value] | None = None,
    ) -> Result:
        """Make a call that waits for its result, and return that.

        Args:
            label: what it is.
            make: the call itself.
            tell: what the timeline says of the result; left out: the result itself.
        """
        self._announce(label)
        start = self.now()
        result = make()
        end = self.now()
        self._note(label, start, end, (tell or plain)(result))
        return result

    def at_once(self, calls: Sequence[tuple[Label, Callable[[], Future[Any]]]]) -> None:
        """Begin all of these calls, and only then wait for them, in the same order."""
        begun = []
        for label, begin in calls:
            start = self.now()
            begun.append((label, start, begin()))
        for label, start, future in begun:
            self._announce(label)
            result = future.wait()
            self._note(label, start, self.now(), plain(result))

    def now(self) -> float:
        """Seconds since the timeline began."""
        return time.monotonic() - self._began

    def _announce(self, label: Label) -> None:
        """Tell the launcher whose answer is awaited, should there be none."""
        self._rank.reach(f"{label.callee}: {label.kind} {label.what}".rstrip())

    def _note(self, label: Label, start: float, end: float, value: Value) -> None:
        self._calls.append(
            Call(
                caller=self._caller,
                callee=label.callee,
                kind=label.kind,
                what=label.what,
                value=value,
                expected=label.expected,
                start=start,
                seconds=end - start,
            )
        )


def plain(result: Any) -> Value:  # noqa: ANN401 - whatever came back
    """A result as a value of the timeline: a tensor as its numbers, anything unusual as text."""
    if isinstance(result, torch.Tensor):
        numbers = result.detach().flatten().tolist()
        return tuple(numbers) if result.dim() else numbers[0]
    return result if isinstance(result, bool | int | float | str) else repr(result)


def shape_of(tensor: torch.Tensor) -> str:
    """``float32[4, 8]``."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype}[{', '.join(map(str, tensor.shape))}]"
