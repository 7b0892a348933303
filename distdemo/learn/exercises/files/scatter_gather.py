# number: 3
# title: Scatter rows and gather results with send and receive
# hints: Three steps, scatter, work and gather. Which of them does rank 0 do alone, and which do all
#   ranks do at the same time?
# hints: If rank 0 sends a row and waits for its result before it sends the next row, only one rank
#   works at a time. Send all rows first.
# hints: On rank 0, first a loop that sends row r to rank r, then work on row 0, then a loop that
#   receives result r from rank r. Each other rank receives, works and sends.
# hints: Receive into torch.empty(width), which has the size of one row; torch.stack makes one
#   tensor of a list of rows.
"""A parallel map, from sends and receives."""

import torch
import torch.distributed as dist


def parallel_map(function, rows, width):
    """Return ``function(row)`` of every row on rank 0, where rank r works on row r.

    Rank 0 has the rows, and all other ranks have None. Rank 0 returns all results, and the other
    ranks return None. Use dist.send and dist.recv (or isend and irecv) only.

    The rows, what each rank works on, and what is returned, if the function doubles::

        [[1., 2.], [3., 4.], [5., 6.]]  # rank 0    [1., 2.]    [[2., 4.], [6., 8.], [10., 12.]]
        None                            # rank 1    [3., 4.]    None
        None                            # rank 2    [5., 6.]    None

    Cost: 2(n−1) messages of one row each. n rounds, if results can arrive while rank 0 still sends
    (irecv first). With send and recv over gloo, results wait until all rows are sent;
    the test counts n rounds for both.

    Args:
        function: Function that returns a tensor of the same size as its argument.
        rows: Tensor with n rows of float32 on rank 0, otherwise None.
        width: Number of elements in a row, known to every rank.
    """
    raise NotImplementedError
