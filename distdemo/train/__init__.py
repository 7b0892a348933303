"""Data-parallel training of a small classifier, proved to be that of one process.

``rpc`` uses nothing of it; other features start it as ``distdemo.train.loop.train``.
"""
