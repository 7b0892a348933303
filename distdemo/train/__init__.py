"""Data-parallel training of a small classifier, verified against one process."""
