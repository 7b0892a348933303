"""Benchmark any operation on any backend, verify it and compare it with the machine's limits.

Modules that other features may use:

- ``timing``: clock and common start of the timed loop; ``statistics``: medians and intervals;
- ``fit.fit``: the α–β model by least squares;
- ``environment``: the machine and its settings; ``recording``: reader of bench files.
"""
