"""What stands between this machine and a working world: a small file a topic, a list of checks.

A check looks at its :class:`~distdemo.doctor.surroundings.Surroundings`, never at the system
itself, and says what it saw; ``registry`` is the one list of them and runs them all.
"""

from __future__ import annotations
