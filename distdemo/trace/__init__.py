"""Algorithms as schedules: run on real ranks, counted on paper, and made ready to be drawn."""
