"""Run one operation on every rank, verify it, show it; ``hello``, ``ops`` and ``explain``."""
