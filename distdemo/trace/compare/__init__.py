"""Algorithms side by side: timed in one world (``compare``), or on paper (``simulate``)."""
