"""Observe a program in this rank: hooks on modules, optimizers and backward passes, as events."""
