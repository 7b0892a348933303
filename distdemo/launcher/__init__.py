"""Start, watch and stop ranks.

The launcher runs a function on every rank of a world and reports how each rank ended. It knows
nothing about what the function does.
"""
