"""Algorithms as schedules: played, run, counted and compared."""
