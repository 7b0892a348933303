"""How ranks come to life, are watched and end.

A launcher runs a function on every rank of a world and says how each ended. It is handed the
function and never knows what it does.
"""
