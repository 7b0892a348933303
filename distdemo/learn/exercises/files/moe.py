# number: 12
# title: Dispatch tokens to experts and combine the results
# hints: A rank doesn't know how many tokens it will receive. Which small message must come first?
# hints: Sort the tokens by their expert, so that the tokens for one rank are adjacent:
#   torch.argsort gives the order, and torch.bincount(choice, minlength=n) the number of tokens per
#   rank.
# hints: Three calls of dist.all_to_all_single: the counts (n numbers), the tokens with these counts
#   as input_split_sizes and the received ones as output_split_sizes, and the results with the two
#   swapped. Splits are lists of ints.
# hints: The results arrive in the sorted order. If order = torch.argsort(choice), then
#   result[order] = arrived puts each at the place of its token.
"""Dispatch and combine of a mixture of experts."""

import torch
import torch.distributed as dist


def mixture(tokens, choice, expert):
    """Return the output of the chosen expert for each token. Expert r is on rank r.

    Two ranks: tokens and their experts (token 2 chose expert 1), what each expert gets, and the
    results if expert 0 returns its tokens and expert 1 multiplies them by 10::

        1→0  2→1  3→1  # rank 0    1  5     # expert 0    1   20  30  # rank 0
        4→1  5→0       # rank 1    2  3  4  # expert 1    40  5       # rank 1

    Cost: three all_to_all. The first one moves counts, n int64 per rank. The other two move only
    tokens, without padding: (sent + received) · d · 4 bytes per rank.

    Args:
        tokens: Tensor of shape [t, d]; t differs between ranks and may be 0.
        choice: Expert of each token; int64 of shape [t].
        expert: This rank's expert: a function of a tensor [any, d] that returns one of this shape.
    """
    raise NotImplementedError
