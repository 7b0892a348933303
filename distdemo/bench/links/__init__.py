"""Measure every pair of ranks in both directions, and find slow links and ranks."""
