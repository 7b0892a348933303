"""Ranks that print forever."""

import threading


def run(rank):
    pause = threading.Event()
    while True:
        print("rank", rank, "is here")
        pause.wait(0.05)
