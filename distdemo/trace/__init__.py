"""Algorithms as schedules: played, run, counted and compared.

Other features may use:

- ``algorithms``: the registry of algorithms, by op;
- ``count.cost(op, algorithm, n)``: rounds and bytes of an algorithm on n ranks for a payload of S
  bytes, as ``rounds · α + share · S · β``, with ``costs`` and ``crossovers`` of several;
- ``records.Crossover``.
"""
