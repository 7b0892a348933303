"""Diagnose a machine: network, limits, torch, MPI, GPUs, and a test world."""
