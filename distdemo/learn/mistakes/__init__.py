"""Common mistakes with collectives as programs to run, and as exercises.

``catalogue`` is the list of mistakes, ``programs`` has a file for each, ``trial`` runs one on real
ranks, and ``exercises`` writes them as exercises.
"""
