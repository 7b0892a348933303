"""Common mistakes with collectives as programs to run.

``catalogue`` is the list of mistakes, ``programs`` has a file for each, and ``trial`` runs one on
real ranks.
"""
