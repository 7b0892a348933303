"""Diagnose a machine: network, limits, torch, MPI, GPUs, and a test world.

Other features may use ``machine`` and ``system``, which read the machine's state.
"""
