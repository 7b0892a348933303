"""What on this machine stands in the way of a working world. It starts no rank.

What other features may use: ``machine`` and ``system``, which read the machine's state.
"""
