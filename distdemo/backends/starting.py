"""Worlds on this machine whose backend is named, and given here what it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distdemo.backends.outfit import outfitted

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldReport, WorldSpec


def run_outfitted(
    world: WorldSpec,
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    **how: Any,  # noqa: ANN401 - the launcher's own
) -> WorldReport:
    """``launchers.local.run_world``, with the world as its backend needs it.

    Raises:
        UsageError: something that it needs is missing, or the ranks can't be started.
    """
    from distdemo.launcher.local import run_world

    return run_world(outfitted(world), target, args, **how)
