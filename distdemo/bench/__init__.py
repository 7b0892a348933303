"""Any operation on any backend: timed, verified, and compared with what the machine can do.

What other features may use:

- ``timing``: the timed loop's clock and common start; ``statistics``: medians and their intervals;
- ``fit.fit``: the α–β model by least squares;
- ``environment``: what figures depend on; ``recording``: sizes and times as files have them.
"""
