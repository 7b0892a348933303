"""Data-parallel training of a small classifier, proved to be that of one process."""
