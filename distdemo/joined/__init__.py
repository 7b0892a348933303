"""Joined worlds: an engine or a user started this process as one of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distdemo.joined.placement import Placement
    from distdemo.joined.world import JoinedWorld


def join(placement: Placement, command: str) -> JoinedWorld:
    """Return this process's part of a joined world.

    Args:
        placement: Placement of this process in the world.
        command: Command line, the same on every node except for the options of one node.
    """
    from distdemo.joined.coordinator import Coordinator
    from distdemo.joined.participant import Participant

    return Participant(placement, command) if placement.node else Coordinator(placement, command)
