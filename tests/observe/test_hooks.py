"""Several listeners are told of the same events, in order, and of those only that they ask for."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.optim.optimizer import Optimizer

import distdemo
from distdemo.observe.hooks import OBSERVER, Listener


class Steps(Listener):
    """Listener that fails after it has noted an event."""

    def __init__(self, events: list[Any]) -> None:
        self._events = events

    def before_step(self, optimizer: Optimizer) -> None:
        """Fail when a step begins."""
        self._events.append("first")
        raise ValueError


class Calls(Listener):
    """Listener of modules, too."""

    def __init__(self, events: list[Any]) -> None:
        self._events = events

    def before_step(self, optimizer: Optimizer) -> None:
        """Note the beginning of a step."""
        self._events.append("second")

    def after_step(self, optimizer: Optimizer) -> None:
        """Note the end of a step."""
        self._events.append("stepped")

    def before_clip(self, parameters: list[Tensor]) -> None:
        """Note how many parameters are clipped."""
        self._events.append(("clip", len(parameters)))

    def on_clip(self, norm: Any) -> None:
        """Note whether there is a norm."""
        self._events.append(("norm", float(norm) > 0))

    def before_accumulation(self, outputs: Iterable[Any]) -> None:
        """Note a backward pass that adds to ``grad``."""
        self._events.append("backward")

    def before_forward(self, module: nn.Module) -> None:
        """Note a call of a module."""
        self._events.append(type(module).__name__)

    def after_forward(self, module: nn.Module, arguments: list[Any], output: Any) -> None:
        """Note what the call returned."""
        self._events.append((len(arguments), None if output is None else tuple(output.shape)))


class Wrapper(Optimizer):
    """Optimizer whose step is one of another optimizer."""

    def __init__(self, inner: Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self._inner = inner

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make a step of the other optimizer."""
        self._inner.step(closure)


def observed() -> tuple[list[Any], int]:
    """Train a layer; return the events, and how many module hooks there were at first."""
    events: list[Any] = []

    def guard(function: Any, *args: Any) -> None:
        with suppress(ValueError):
            function(*args)

    OBSERVER.add(Steps(events), guard)
    count = len(modules._global_forward_hooks)
    OBSERVER.add(Calls(events), guard)
    layer = nn.Linear(3, 2)
    optimizer = Wrapper(torch.optim.SGD(layer.parameters(), lr=0.1))
    loss = layer(torch.ones(4, 3)).sum()
    torch.autograd.grad(loss, layer.weight, retain_graph=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    optimizer.step()
    with suppress(RuntimeError):
        layer(input=torch.ones(4, 5))
    with pytest.warns(UserWarning, match="empty generator"):
        torch.nn.utils.clip_grad_norm_(nn.ReLU().parameters(), 1.0)
    return events, count


@pytest.mark.processes
def test_listeners_share_the_hooks() -> None:
    ((events, count),) = distdemo.launch(observed, world_size=1)
    assert count == 0
    assert events == [
        "Linear",
        (1, (4, 2)),
        "backward",
        ("clip", 2),
        ("norm", True),
        "first",
        "second",
        "stepped",
        "Linear",
        (0, None),
        ("clip", 0),
        ("norm", False),
    ]
