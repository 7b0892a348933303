"""Names that the user leaves out of a comparison with ``--except``."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase


class Exclusion:
    """Patterns of names, and the names that they have matched.

    Args:
        patterns: Patterns as for files, such as ``experts.*``.

    Attributes:
        patterns: These patterns.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns = tuple(patterns)
        self._matches: dict[str, set[str]] = {}

    def excludes(self, name: str) -> bool:
        """Return True if a pattern matches a name."""
        if name not in self._matches:
            matches = (pattern for pattern in self.patterns if fnmatchcase(name, pattern))
            self._matches[name] = set(matches)
        return bool(self._matches[name])

    @property
    def excluded(self) -> tuple[str, ...]:
        """Names that a pattern has matched, in order."""
        return tuple(name for name, patterns in self._matches.items() if patterns)

    @property
    def unmatched(self) -> tuple[str, ...]:
        """Patterns that have matched no name."""
        matched = set().union(*self._matches.values())
        return tuple(pattern for pattern in self.patterns if pattern not in matched)
