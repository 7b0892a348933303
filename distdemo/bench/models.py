"""What each algorithm of each op costs by the α–β model: one table, in closed forms.

A message of s bytes takes α + s·β (R. W. Hockney, The communication challenge for MPP, Parallel
Computing 20, 1994). An algorithm takes so many rounds, in each of which a rank sends and receives
at most one message, and passes so many bytes through a rank's link one after the other:
T = rounds · α + share · S · β. S is what algbw counts (nccl-tests): one rank's tensor, or all n
parts where a rank has a part for everyone.

Reducing costs time for each byte, too (γ). In every algorithm here the bytes that are reduced are
the same share of those sent in whatever world, or nearly: γ can't be told from β by timing, and is
in β.

The table is the one place here that knows ops by name. It is data that is looked up: no engine does
one thing for this op and another for that, and of an op that is not in it ``bench fit`` says that
no formula is known.

Sources: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective Communication Operations
in MPICH, IJHPCA 19, 2005; E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn, Collective
communication: theory, practice, and experience, Concurrency and Computation 19, 2007.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Formula = Callable[[int], float]
THAKUR = "Thakur et al. 2005"
CHAN = "Chan et al. 2007"


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to do an op.

    Attributes:
        name: ``ring``, ``tree``, ...
        rounds: how often α is paid, by the number of ranks.
        share: how often S is paid, likewise.
        words: both, as people write them; lg is the logarithm to base 2, rounded up.
        source: of the formula: the paper and its section, or how it follows.
    """

    name: str
    rounds: Formula
    share: Formula
    words: str
    source: str

    def seconds(self, n: int, size: float, alpha: float, beta: float) -> float:
        """What the op takes on n ranks."""
        return self.rounds(n) * alpha + self.share(n) * size * beta


def _log(n: int) -> int:
    """The logarithm to base 2, rounded up: rounds in which a message reaches n ranks."""
    return (n - 1).bit_length()


def _power(n: int) -> int:
    """The largest power of 2 that is not above n."""
    return 1 << (n.bit_length() - 1)


def _odd(n: int) -> int:
    """1 where n is no power of 2, else 0."""
    return int(_power(n) != n)


def _parts(n: int) -> float:
    """All parts but a rank's own."""
    return (n - 1) / n


def _halves(n: int) -> float:
    """What halving passes: all parts but one, of the largest power of 2."""
    return _parts(_power(n))


def _floor(n: int) -> int:
    return _power(n).bit_length() - 1


def _one(_: int) -> float:
    return 1


def _bruck(n: int) -> float:
    """In round k of Bruck's exchange a rank passes on all parts whose number has bit k set."""
    parts = sum(_with_bit(n, bit) for bit in range(_log(n)))
    return parts / n


def _with_bit(n: int, bit: int) -> int:
    """How many of the numbers below n have this bit set."""
    block = 2 << bit
    return n // block * (block // 2) + max(0, n % block - block // 2)


_RING = Algorithm(
    "ring",
    lambda n: n - 1,
    _parts,
    "(n−1)α + (n−1)/n·Sβ",
    f"{THAKUR}, 4.1",
)
_SPREAD_TREE = Algorithm("tree", _log, _parts, "lg n·α + (n−1)/n·Sβ", f"{THAKUR}, 4.2 (binomial)")
_SPREAD_FLAT = Algorithm(
    "flat", lambda n: n - 1, _parts, "(n−1)α + (n−1)/n·Sβ", "the root and each rank in turn"
)
_WHOLE_TREE = Algorithm("tree", _log, _log, "lg n·(α + Sβ)", f"{THAKUR}, 4.2; {CHAN} (binomial)")
_WHOLE_FLAT = Algorithm(
    "flat", lambda n: n - 1, lambda n: n - 1, "(n−1)(α + Sβ)", "the root and each rank in turn"
)

# Where n is no power of 2, the ranks beyond the largest one hand their data to a neighbour first
# and get the result from it last (Thakur et al. 2005, 4.5).
ALGORITHMS: dict[str, tuple[Algorithm, ...]] = {
    "all_reduce": (
        Algorithm(
            "ring",
            lambda n: 2 * (n - 1),
            lambda n: 2 * _parts(n),
            "2(n−1)α + 2(n−1)/n·Sβ",
            f"{THAKUR}, 4.5; {CHAN} (reduce-scatter, all-gather)",
        ),
        Algorithm(
            "tree",
            lambda n: 2 * _log(n),
            lambda n: 2 * _log(n),
            "2 lg n·(α + Sβ)",
            f"{CHAN} (binomial reduce, broadcast)",
        ),
        Algorithm(
            "doubling",
            lambda n: _floor(n) + 2 * _odd(n),
            lambda n: _floor(n) + 2 * _odd(n),
            "lg n·(α + Sβ)",
            f"{THAKUR}, 4.5 (recursive doubling)",
        ),
        Algorithm(
            "halving-doubling",
            lambda n: 2 * (_floor(n) + _odd(n)),
            lambda n: 2 * (_halves(n) + _odd(n)),
            "2 lg n·α + 2(n−1)/n·Sβ",
            f"{THAKUR}, 4.5 (Rabenseifner)",
        ),
        Algorithm(
            "flat",
            lambda n: 2 * (n - 1),
            lambda n: 2 * (n - 1),
            "2(n−1)(α + Sβ)",
            "reduce and broadcast, the root and each rank in turn",
        ),
    ),
    "reduce_scatter": (
        _RING,
        Algorithm(
            "halving",
            lambda n: _floor(n) + 2 * _odd(n),
            lambda n: _halves(n) + _odd(n) * (1 + 1 / n),
            "lg n·α + (n−1)/n·Sβ",
            f"{THAKUR}, 4.4 (recursive halving)",
        ),
        Algorithm(
            "tree",
            lambda n: 2 * _log(n),
            lambda n: _log(n) + _parts(n),
            "2 lg n·α + (lg n + (n−1)/n)·Sβ",
            f"{THAKUR}, 4.4 (binomial reduce, scatter)",
        ),
    ),
    "all_gather": (
        _RING,
        Algorithm(
            "doubling", _log, _parts, "lg n·α + (n−1)/n·Sβ", f"{THAKUR}, 4.1 (doubling, Bruck)"
        ),
        Algorithm(
            "tree",
            lambda n: 2 * _log(n),
            lambda n: _parts(n) + _log(n),
            "2 lg n·α + ((n−1)/n + lg n)·Sβ",
            f"{CHAN} (binomial gather, broadcast)",
        ),
    ),
    "broadcast": (
        _WHOLE_TREE,
        Algorithm(
            "scatter-ring",
            lambda n: _log(n) + n - 1,
            lambda n: 2 * _parts(n),
            "(lg n + n − 1)α + 2(n−1)/n·Sβ",
            f"{THAKUR}, 4.2 (van de Geijn)",
        ),
        Algorithm(
            "scatter-doubling",
            lambda n: 2 * _log(n),
            lambda n: 2 * _parts(n),
            "2 lg n·α + 2(n−1)/n·Sβ",
            f"{THAKUR}, 4.2 (scatter, recursive doubling)",
        ),
        _WHOLE_FLAT,
    ),
    "reduce": (
        _WHOLE_TREE,
        Algorithm(
            "halving-gather",
            lambda n: 2 * _floor(n) + _odd(n),
            lambda n: 2 * _halves(n) + _odd(n),
            "2 lg n·α + 2(n−1)/n·Sβ",
            f"{THAKUR}, 4.5 (Rabenseifner)",
        ),
        Algorithm(
            "ring-gather",
            lambda n: n - 1 + _log(n),
            lambda n: 2 * _parts(n),
            "(n − 1 + lg n)α + 2(n−1)/n·Sβ",
            f"{CHAN} (ring reduce-scatter, binomial gather)",
        ),
        _WHOLE_FLAT,
    ),
    "gather": (_SPREAD_TREE, _SPREAD_FLAT),
    "scatter": (_SPREAD_TREE, _SPREAD_FLAT),
    "all_to_all": (
        Algorithm(
            "pairwise",
            lambda n: n - 1,
            _parts,
            "(n−1)α + (n−1)/n·Sβ",
            f"{THAKUR}, 4.3 (long messages)",
        ),
        Algorithm("bruck", _log, _bruck, "lg n·α + ½ lg n·Sβ", f"{THAKUR}, 4.3 (short messages)"),
    ),
    "p2p": (Algorithm("message", _one, _one, "α + Sβ", "Hockney 1994"),),
}
"""By torch's name of the op; the first is what is assumed where timing can't tell."""


def algorithms(op: str) -> tuple[Algorithm, ...]:
    """Those of the op; none where no formula is known, as for a barrier."""
    return ALGORITHMS.get(op, ())


def find(op: str, name: str) -> Algorithm:
    """The op's algorithm of this name.

    Raises:
        KeyError: it has none.
    """
    return {each.name: each for each in algorithms(op)}[name]
