"""Every rank starts children of its own: some that end, and some that would outlive it."""

import multiprocessing as mp
import subprocess
import sys
import threading


def answer(pipe):
    pipe.send(42)


def linger():
    threading.Event().wait(600)


def run(rank, size):
    here, there = mp.Pipe()
    child = mp.Process(target=answer, args=(there,))
    child.start()
    got = here.recv()
    child.join()
    line = [sys.executable, "-S", "-c", "print('hi')"]
    said = subprocess.run(line, capture_output=True, text=True, check=True)
    daemon = mp.Process(target=linger, daemon=True)
    daemon.start()
    sleeper = subprocess.Popen(["sleep", "600"])
    return got, said.stdout.strip(), [daemon.pid, sleeper.pid]
