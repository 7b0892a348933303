"""Building blocks of views: consoles, tables, text formats, failures, progress, plots.

Nothing here imports torch.
"""
