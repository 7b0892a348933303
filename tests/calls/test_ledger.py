"""Samples of tensors on several ranks are compared as the training means them to be."""

from __future__ import annotations

import pytest

from distdemo.calls.exclusion import Exclusion
from distdemo.calls.match.ledger import Ledger
from distdemo.calls.notes import (
    CHANGED,
    CONSTANT,
    GRADIENT,
    REDUCED,
    WRITTEN,
    GroupKey,
    Samples,
    TensorNote,
    TrainingNote,
)
from distdemo.calls.records import Finding, SourceLine

LINE = SourceLine("train.py", 23)
GLOO = "gloo"


def as_it_is(line: SourceLine) -> SourceLine:
    """Return a line as the matcher shows one that needs no callers."""
    return line


class Ranks:
    """Ledgers of four ranks that train a weight.

    Args:
        declared: Members of the group on which it is declared; none by default.
        path: Path of the weight.
    """

    def __init__(self, *declared: int, path: str = "w", strict: bool = False) -> None:
        self.ledger = Ledger(is_strict=strict)
        self.size = 4
        self.describe(0, path, *declared)

    def describe(
        self, number: int, path: str, *declared: int, ranks: str = "0123", replaces: int = -1
    ) -> None:
        """Describe a tensor on some ranks."""
        key = GroupKey(declared, GLOO, 0)
        for rank in map(int, ranks):
            keys = (key,) if rank in declared else ()
            note = TensorNote(number, path, "Net", (4, 4), "float32", replaces, keys=keys)
            self.ledger.describe(rank, note)

    def step(
        self,
        steps: int,
        digests: str,
        *,
        flags: int = GRADIENT,
        number: int = 0,
        end: bool = False,
        apart: float = 0.5,
        clipped: tuple[float, ...] = (-1.0,) * 4,
        gradients: str = "",
    ) -> bool:
        """Add a sample of each rank, a letter for each value; return True if a split is certain.

        A dash stands for a rank without a sample.
        """
        certain = []
        for rank, digest in enumerate(digests):
            if digest == "-":
                continue
            note = Samples(
                "end" if end else "step",
                steps,
                (number,),
                (ord(digest),),
                (1.0,),
                ((ord(digest) * apart,),),
                (flags,),
                (ord(gradients[rank]),) if gradients else (),
                clipped[rank],
                1,
                LINE,
            )
            certain.append(self.ledger.add(rank, note))
        return any(certain)

    def train(self, **facts: object) -> None:
        """Add facts about the optimizer of each rank."""
        for rank in range(self.size):
            note = TrainingNote(1, "SGD", LINE, **facts)  # type: ignore[arg-type]
            self.ledger.training[rank, 1] = note

    @property
    def findings(self) -> list[Finding]:
        """Findings so far."""
        return [*self.ledger.findings(as_it_is)]


@pytest.mark.parametrize(
    ("digests", "what", "guilty"),
    [
        ("bbcb", "Rank 2: w differs from ranks 0, 1, 3 after step 2.", (2,)),
        ("bcde", "w differs between all ranks after step 2.", ()),
        ("bcbc", "w differs between ranks 0, 2 and ranks 1, 3 after step 2.", ()),
        ("bbcd", "w has 3 different values after step 2.", ()),
    ],
)
def test_ranks_are_at_fault_only_if_most_others_agree(
    digests: str, what: str, guilty: tuple[int, ...]
) -> None:
    ranks = Ranks(0, 1, 2, 3)
    ranks.step(0, "aaaa")
    ranks.step(2, digests)
    (finding,) = ranks.findings
    assert (finding.what, finding.ranks, finding.level) == (what, guilty, "warn")
    assert "equal before the first step; the steps in between were not" in finding.before


ALL = (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("declared", "samples", "level"),
    [
        (ALL, ["aaaa", "bbbb", "cccd"], "warn"),
        ((), ["aaaa", "bbbb", "cccd"], "warn"),  # it has lasted through a step
        ((), ["aaaa", "bcde"], "note"),  # experts and shards that were drawn with one seed
        ((), ["aaaa", "bbcc"], "note"),
        ((), ["aaaa", "bbcc", "ddef"], "warn"),  # of which two were replicas
        ((), ["abcd", "bcde"], None),  # own models, or stages of a pipeline
        ((), ["abcd", "eeee", "cccd"], "warn"),  # of which each rank drew its own start
        ((0, 1), ["aabb", "cded"], "warn"),
        (ALL, ["aaaa", "abcd", "bbbb", "cdef"], None),  # averaged now and then
        ((), ["aaaa", "abcd", "bbbb", "cdef"], None),
        (ALL, ["abcd", "bcde"], "warn"),  # other seeds
        (ALL, ["aaaa", "bbb-", "cc--"], None),  # a rank makes fewer steps
    ],
)
def test_classes_of_equal_ranks(
    declared: tuple[int, ...], samples: list[str], level: str | None
) -> None:
    ranks = Ranks(*declared)
    for steps, digests in enumerate(samples):
        ranks.step(steps, digests)
    assert [finding.level for finding in ranks.findings] == [level] * (level is not None)


def test_values_that_are_constant_or_have_no_gradient_prove_nothing() -> None:
    ranks = Ranks()
    ranks.step(0, "aaaa", flags=CONSTANT | GRADIENT)  # a projection that starts at zero
    ranks.step(1, "bcde")
    assert ranks.findings == []
    assert (ranks.ledger.report(0).parameters, ranks.ledger.report(0).constant) == (0, ("w",))
    ranks.describe(1, "v")
    ranks.step(0, "aaaa", number=1)
    ranks.step(1, "bbbc", number=1)
    (finding,) = ranks.findings
    assert finding.what.startswith("2 of 2 parameters started equal")  # together with others
    ranks = Ranks()
    ranks.step(0, "abcd", flags=0)
    ranks.step(1, "bbbb", flags=0)  # a copy of one rank's, which others don't train
    ranks.step(2, "bcde")
    assert ranks.findings == []


def test_what_nothing_declares_is_an_error_only_if_it_is_asked_for() -> None:
    ranks = Ranks(strict=True)
    ranks.describe(1, "v")
    for number in range(2):
        ranks.step(0, "aaaa", number=number)
        assert not ranks.step(1, "bcde", number=number)
    (finding,) = ranks.findings
    assert finding.level == "error"
    assert finding.what == (
        "2 of 2 parameters started equal on ranks 0, 1, 2, 3 and differed after step 1: w and v."
    )
    assert "--except 'w'" in finding.rule


@pytest.mark.parametrize(("flags", "certain"), [(REDUCED, True), (0, False)])
def test_a_split_is_certain_at_once_if_the_gradients_were_reduced(
    flags: int, certain: bool
) -> None:
    ranks = Ranks(*ALL, strict=True)
    ranks.step(0, "aaaa")
    assert not ranks.step(1, "bcc-", flags=flags)
    assert ranks.step(1, "---c", flags=flags) is certain


def test_what_rounding_explains_is_a_note() -> None:
    ranks = Ranks(*ALL)
    ranks.step(0, "aaaa")
    ranks.step(1, "bbbc", apart=1e-8)
    (finding,) = ranks.findings
    assert (finding.level, finding.rule) == (
        "note",
        "The difference is no larger than rounding.",
    )


def test_what_the_program_changes_between_steps_may_be_meant_to_differ() -> None:
    ranks = Ranks(*ALL)
    ranks.step(0, "aaaa")
    ranks.step(1, "bcde", flags=GRADIENT | WRITTEN)  # gossip
    assert [finding.level for finding in ranks.findings] == ["note"]


def test_a_change_after_the_last_step_is_no_finding() -> None:
    ranks = Ranks(*ALL)
    ranks.step(0, "aaaa")
    ranks.step(1, "bbbb", end=True)
    ranks.step(1, "z---", end=True, flags=CHANGED)
    assert ranks.findings == []
    assert ranks.ledger.report(0).changed == ("w",)


def test_facts_tell_where_a_difference_comes_from() -> None:
    ranks = Ranks(*ALL)
    ranks.step(0, "aaaa", gradients="aaaa")
    ranks.step(1, "bbbc")
    assert "the optimizers differ" in ranks.findings[0].rule
    ranks = Ranks(*ALL)
    ranks.step(0, "aaaa", gradients="aaab", clipped=(1.0, 1.0, 1.0, 2.0))
    ranks.step(1, "bbbc")
    (finding,) = ranks.findings
    assert "scaled differently" in finding.rule
    assert "clip_grad_norm_ returned 1 on ranks 0, 1, 2, 2 on rank 3 before step 1." in (
        finding.before
    )
    ranks = Ranks(*ALL)
    ranks.step(4, "aaaa")
    ranks.step(8, "bbbc")
    assert "--check-replicas=1" in ranks.findings[0].rule


@pytest.mark.parametrize(
    ("why", "text", "advice"),
    [
        ("not called", "the DDP module was never called", "Call the wrapper"),
        ("unused", "DDP didn't finish its reduction", "v got no gradient"),
        ("", "no call carried a gradient", "Reduce the gradients"),
    ],
)
def test_steps_without_a_reduction_are_the_cause(why: str, text: str, advice: str) -> None:
    ranks = Ranks(*ALL)
    ranks.train(steps=4, unreduced=3, why=why, unused="v")
    ranks.step(0, "aaaa")
    ranks.step(1, "bcde")
    (finding,) = ranks.findings
    assert finding.kind == "unreduced"
    assert finding.what == (
        f"Ranks 0, 1, 2, 3: 3 of 4 steps changed parameters without a reduction; {text}."
    )
    assert finding.rule.startswith(advice)


def test_a_rank_that_ddp_wraps_again_is_compared_once_the_other_ranks_are() -> None:
    ranks = Ranks(*ALL, strict=True)
    ranks.step(0, "aaaa", flags=REDUCED)
    ranks.step(1, "bbbb", flags=REDUCED)
    for rank in "0123":
        ranks.describe(1, "w", *ALL, ranks=rank, replaces=0)
        alone = "-" * int(rank) + "{}" + "-" * (3 - int(rank))
        assert not ranks.step(0, alone.format("c"), number=1, flags=REDUCED)
        assert not ranks.step(1, alone.format("d"), number=1, flags=REDUCED)
    assert ranks.findings == []


def test_under_join_only_the_end_is_compared() -> None:
    ranks = Ranks(*ALL)
    ranks.train(steps=3, joined=True)
    ranks.step(0, "aaaa")
    ranks.step(1, "bcde")
    for rank in range(4):
        digests = ["-"] * 4
        digests[rank] = "f"
        ranks.step(rank + 1, "".join(digests), end=True)
    assert ranks.findings == []
    assert ranks.ledger.report(0).at_end


def test_tensors_of_one_name_are_paired_by_their_order_or_their_groups() -> None:
    ranks = Ranks()
    ranks.describe(1, "w")  # a second model of the same class
    for steps, digests in enumerate(("aaaa", "bbbb")):
        ranks.step(steps, digests, number=0)
        ranks.step(steps, digests.replace("b", "c"), number=1)
    assert (ranks.findings, ranks.ledger.report(0).parameters) == ([], 2)
    ranks.describe(2, "w", ranks="0")  # and one that only rank 0 has
    ranks.step(0, "x---", number=2)
    assert ranks.ledger.report(0).uneven == ("w", "w")
    ranks = Ranks(ranks.size - 1)
    ranks.describe(1, "w", *ALL)
    ranks.step(0, "---x", number=0)
    ranks.step(0, "aaaa", number=1)
    report = ranks.ledger.report(0)
    assert (report.parameters, report.uneven) == (1, ())


def test_only_ranks_with_the_same_piece_are_compared() -> None:
    ledger = Ledger()
    for rank in range(4):
        keys = (GroupKey((rank % 2, rank % 2 + 2), GLOO, 0),)
        note = TensorNote(0, "w", "Net", (4, 4), "float32", keys=keys, piece=(rank % 2,))
        ledger.describe(rank, note)
    for steps, digests in enumerate(("abab", "cdce")):
        for rank, digest in enumerate(digests):
            values = Samples("step", steps, (0,), (ord(digest),), (0.0,), ((),), (GRADIENT,))
            ledger.add(rank, values)
    (finding,) = ledger.findings(as_it_is)
    assert finding.what == "w differs between rank 1 and rank 3 after step 1."


def test_the_cause_of_an_unequal_start_may_be_the_order_of_the_parameters() -> None:
    ledger = Ledger()
    for rank in range(2):
        for number, path in enumerate("ab" if rank else "ba"):
            keys = (GroupKey((0, 1), GLOO, 0),)
            note = TensorNote(number, path, "Net", (4,), "float32", keys=keys, ddp=True)
            ledger.describe(rank, note)
            digest = rank + 1 + 2 * number
            ledger.add(rank, Samples("step", 0, (number,), (digest,), (0.0,), ((),), (0,)))
    (finding,) = ledger.findings(as_it_is)
    assert "Create submodules in the same order" in finding.rule


def test_a_pattern_leaves_parameters_out() -> None:
    ranks = Ranks(path="experts.0.w")
    ranks.ledger = Ledger(exclusion=Exclusion(("experts.*", "x")))
    ranks.describe(0, "experts.0.w")
    ranks.step(0, "aaaa")
    ranks.step(1, "bcde")
    report = ranks.ledger.report(0)
    assert (ranks.findings, report.excluded, report.unmatched) == ([], ("experts.0.w",), ("x",))
    assert not report.complete
