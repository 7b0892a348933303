"""Comparison of algorithms: timed in one world (``compare``), or on paper (``simulate``)."""
