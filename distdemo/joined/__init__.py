"""Joined worlds: an engine or a user started this process as one of several."""
