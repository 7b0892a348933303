"""Measuring: the common start, the timed loop, statistics, and the file of a measurement."""
