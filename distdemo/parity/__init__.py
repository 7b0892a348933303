"""``distdemo parity``: the same program on one rank and on N, and the first tensor that differs.

From a run to its verdict::

    rank, recorder, model, start  in a rank: note each tensor, copy the reference's parameters
    sketches, notes               what is kept of a tensor, and the files that carry it
    worlds                        run the program on one rank, again with moved parameters, and on N
    compare, placements           how far a tensor may differ, and how the ranks make it together
    results                       each tensor of the ranks next to the reference's
    judge, forward, backward      the first tensor that is wrong, and the verdict on it
    gaps, remarks                 what could not be compared, and what else to say
    wording, view                 words of the verdicts, and the table
"""
