# number: 14
# title: Fit α and β to measured times, and predict which all-reduce is faster
# hints: A rank that is done early waits for the slowest one. So which of the ranks' times for a
#   size counts? One all_reduce of all times gives it to every rank.
# hints: A line through the points (size, time) has the least sum of squared errors if its slope β
#   is the mean of (size − mean size) · (time − mean time), divided by the mean of (size − mean
#   size)². It passes through (mean size, mean time), which gives α.
# hints: For the second function, write down what each algorithm takes with S bytes. Doubling sends
#   log2 n messages of S bytes, so it takes log2 n · (α + S·β). The ring sends 2(n−1) messages of
#   S/n bytes.
# hints: Then solve for S. The ring has 2(n−1) − log2 n messages more, each for α, and sends (log2
#   n − 2(n−1)/n) · S bytes less, each for β. On which number of ranks does it send no bytes less?
"""The α-β model: a message of b bytes takes α + b·β."""

import torch
import torch.distributed as dist


def fit(sizes, times):
    """Return α and β, as floats, of the line that fits best.

    Take for each size the time of the slowest rank. Best means the least sum of squared errors. A
    measurement on two ranks, and α and β::

        sizes  [  0., 1000., 2000.]  # rank 0 and rank 1
        times  [100.,  900., 2200.]  # rank 0    α = 50., β = 1.05 on both ranks
               [ 80., 1000., 2000.]  # rank 1

    Cost: one all_reduce of the times.

    Args:
        sizes: Sizes in bytes, a float64 tensor, the same on every rank.
        times: This rank's time for each size in ns, a float64 tensor.
    """
    raise NotImplementedError


def equal_size(alpha, beta, n):
    """Return the size in bytes for which doubling and ring all-reduce take equally long.

    Doubling sends log2 n messages of S bytes, one after the other, and the ring 2(n−1) messages of
    S/n bytes. If the ring is faster for no size, the result is math.inf.

    Args:
        alpha: α in ns.
        beta: β in ns per byte.
        n: Number of ranks, a power of 2, at least 2. It is not the world size.
    """
    raise NotImplementedError
