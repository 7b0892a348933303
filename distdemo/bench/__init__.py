"""Benchmark any operation on any backend, verify it and compare it with the machine's limits."""
