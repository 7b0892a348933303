"""The usual mistakes with collectives, each a program that is run, and exercises made of them.

``catalogue`` is the one list of them, ``programs`` has a file for each, ``trial`` runs one on real
ranks, and ``exercises`` writes them for readers to repair.
"""
