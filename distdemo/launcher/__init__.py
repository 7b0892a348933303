"""How ranks come to life. A launcher runs a function on every rank and says how each ended.

It is handed the function and never knows what it does (nothing here imports ``programs``).
"""
