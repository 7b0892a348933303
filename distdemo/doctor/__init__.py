"""What on this machine stands in the way of a working world, and a small world to try.

What other features may use: ``machine`` and ``system``, which read the machine's state.
"""
