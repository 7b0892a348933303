"""What every view is made of: consoles, tables, numbers as text, failures, progress, plots.

Nothing here imports torch.
"""
