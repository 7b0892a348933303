"""What a program does in this rank: hooks on modules, optimizers and backward passes, as events."""
