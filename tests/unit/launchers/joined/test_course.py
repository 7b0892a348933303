from __future__ import annotations

import time
from typing import Any

import pytest

from distdemo.launcher.joined.course import SHORTEST, SILENT, Course, SiteState, silence_within
from distdemo.launcher.records import Died, Lost, Outcome, Returned, Stopped

WELL = Returned(rank=1, at=0.5)
ILL = Died(rank=2, at=0.7, signal=9)


def course(*hosts: str, patience: float = SILENT) -> Course:
    """Sites 1, 2, … on these hosts; empty: it has not said a word."""
    return Course({n: SiteState(host) for n, host in enumerate(hosts, start=1)}, patience)


def post(made: Course, *outcomes: Outcome, later: float = 0.0, stalled: bool = False) -> Any:
    """What a site says at its end, whose first rank began so many seconds after the leader's."""
    return {"began": made.began[0] + later, "outcomes": outcomes, "stalled": stalled}


def only(made: Course, site: int, rank: int = 1) -> Lost:
    """How the one rank of a lost site ended."""
    (outcome,) = made.outcomes(site, range(rank, rank + 1))
    assert isinstance(outcome, Lost)
    assert (outcome.rank, outcome.phase.step) == (rank, -1)
    assert outcome.hint
    return outcome


# ---------------------------------------------------------------------------------- all is well


def test_a_world_is_done_when_every_site_has_ended() -> None:
    made = course("a", "b")
    assert not made.done
    made.ended(1, post(made, WELL))
    assert not made.done
    made.ended(2, post(made, WELL))
    assert (made.done, made.answered, made.failed_at) == (True, True, None)


def test_moments_are_moved_onto_the_leader_s_clock() -> None:
    made = course("a")
    made.ended(1, post(made, WELL, later=2.0))
    (outcome,) = made.outcomes(1, range(1, 2))
    assert isinstance(outcome, Returned)
    assert outcome.at == pytest.approx(2.5)


def test_without_other_sites_there_is_nothing_to_wait_for() -> None:
    assert course().done


# ------------------------------------------------------------------------------------- failures


def test_a_site_whose_rank_died_has_failed_and_the_first_failure_counts() -> None:
    made = course("a", "b")
    before = time.monotonic()
    made.ended(1, post(made, WELL, ILL))
    assert made.failed_at is not None
    first = made.failed_at
    assert before <= first <= time.monotonic()
    made.gone(2)
    assert made.failed_at == first


def test_ranks_without_progress_are_noted() -> None:
    made = course("a", "b")
    made.ended(1, post(made, WELL, stalled=True))
    made.ended(2, post(made, WELL))
    assert made.stalled


def test_a_process_that_is_gone_is_lost_with_all_its_ranks() -> None:
    made = course("a", "b")
    made.gone(2)
    lost = made.outcomes(2, range(2, 4))
    assert [each.rank for each in lost] == [2, 3]
    assert all(isinstance(each, Lost) for each in lost)
    assert only(made, 2).why == "the process on b ended without a word"
    assert 0 <= only(made, 2).at < 10
    assert made.failed_at is not None


def test_a_process_that_leaves_after_its_word_is_not_lost() -> None:
    made = course("a")
    made.ended(1, post(made, WELL))
    made.gone(1)
    made.silent({1: 1000.0})
    made.give_up()
    assert isinstance(made.outcomes(1, range(1, 2))[0], Returned)
    assert made.failed_at is None


def test_silence_is_borne_for_so_long() -> None:
    made = course("a", "", patience=3.0)
    made.silent({1: 2.9, 2: 3.0})
    assert made.failed_at is None
    made.silent({1: 3.1, 2: 3.2})
    assert only(made, 1).why == "no sign of life on a for 3 s"
    assert only(made, 2).why == "no sign of life for 3 s"
    assert "network" in only(made, 1).hint


def test_signs_of_life_of_a_site_that_is_none_don_t_matter() -> None:
    made = course("a")
    made.silent({7: 100.0})
    assert not made.done


@pytest.mark.parametrize(
    ("timeout", "silence"), [(1.0, SHORTEST), (6.0, 3.0), (30.0, SILENT), (1e6, SILENT)]
)
def test_silence_is_borne_for_half_of_a_short_timeout(timeout: float, silence: float) -> None:
    assert silence_within(timeout) == silence


def test_who_has_not_ended_when_time_is_up_is_lost() -> None:
    made = course("a", "")
    assert not made.answered
    made.give_up()
    assert only(made, 1).why == "the process on a did not say in time how it went"
    assert only(made, 2).why.startswith("never came")
    assert made.done


def test_who_was_not_heard_of_when_others_failed_early_is_not_to_blame() -> None:
    made = course("a", "", "")
    made.ended(1, post(made, ILL))
    made.gone(3)
    failed_at = made.failed_at
    made.give_up(early=True)
    (outcome,) = made.outcomes(2, range(2, 3))
    assert isinstance(outcome, Stopped)
    assert (outcome.rank, outcome.phase.name) == (2, "not started")
    assert only(made, 3).why == "the process ended without a word"
    assert (made.done, made.failed_at) == (True, failed_at)


def test_a_site_of_which_nothing_was_heard_is_not_waited_for() -> None:
    made = course("a", "")
    made.ended(1, post(made, WELL))
    assert (made.done, made.answered) == (False, True)


def test_a_site_that_should_not_have_begun_is_the_first_cause_whatever_it_said() -> None:
    made = course("a", "b")
    made.ended(1, post(made, ILL))
    made.refuse(2, "was asked for something else", "Ask alike.")
    assert only(made, 2) == Lost(
        rank=1, at=0.0, why="was asked for something else", hint="Ask alike."
    )
    made.ended(1, post(made, WELL))
    made.refuse(1, "can't take part", "Look there.")
    assert only(made, 1).why == "can't take part"


def test_the_first_reason_stays() -> None:
    made = course("a")
    made.gone(1)
    made.silent({1: 100.0})
    made.give_up()
    assert "without a word" in only(made, 1).why


def test_what_a_refused_site_says_of_its_ranks_does_not_count() -> None:
    made = course("a")
    made.refuse(1, "asked for something else", "Give every process the same command.")
    made.ended(1, post(made, WELL))
    assert only(made, 1).why == "asked for something else"
