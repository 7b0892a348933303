"""What a process was asked to do: every process of a joined world has to be asked alike."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Errand:
    """What a process was asked to do.

    Attributes:
        meaning: all that has to be the same everywhere.
        words: how it was asked, for people.
    """

    meaning: str
    words: str

    @property
    def digest(self) -> str:
        """The meaning in 16 digits."""
        return hashlib.sha256(self.meaning.encode()).hexdigest()[:16]
