from __future__ import annotations

from distdemo.bench.skew import SkewLog


def log(delays, turns=40):
    """Ranks that come so many seconds after each whole second; the call takes a quarter."""
    found = SkewLog(range(len(delays)))
    arrived = [[turn + delay for turn in range(turns)] for delay in delays]
    found.add(arrived, [[0.25] * turns for _ in delays])
    return found.summary()


def test_who_comes_late_and_how_long_the_others_wait():
    first, second, third = log([0.0, 0.001, 0.0001])
    assert first.late == 0.0
    assert abs(second.late - 1e-3) < 1e-9
    assert (first.last, second.last, third.last) == (0.0, 1.0, 0.0)
    assert abs(first.waited - 1e-3) < 1e-9
    assert second.waited == 0.0
    assert first.took == 0.25
    assert [each.named for each in (first, second, third)] == [False, True, False]


def test_nobody_is_named_for_what_a_look_at_shared_memory_takes():
    assert not any(each.named for each in log([0.0, 1e-6, 0.5e-6, 0.0]))


def test_nobody_is_named_where_all_are_alike():
    found = SkewLog(range(3))
    for turn in range(60):
        late = [1e-3 if rank == turn % 3 else 0.0 for rank in range(3)]
        found.add([[0.0, each] for each in late], [[0.0, 0.1]] * 3)
    summary = found.summary()
    assert not any(each.named for each in summary)
    assert {round(each.last, 2) for each in summary} == {0.33}


def test_the_first_iteration_of_a_visit_does_not_count():
    found = SkewLog(range(2))
    found.add([[0.0], [5.0]], [[0.1], [0.1]])
    assert found.summary() == ()


def test_a_single_rank_has_nobody_to_be_late_for():
    assert log([0.0]) == ()


def test_that_a_broadcast_lets_its_root_go_first_makes_nobody_late():
    for lopsided in (True, False):
        found = SkewLog(range(2), lopsided=lopsided)
        began = [[float(turn) for turn in range(40)]] * 2
        took = [[0.1] * 40, [0.3] * 40]
        arrived = [
            [b + t for b, t in zip(*pair, strict=True)] for pair in zip(began, took, strict=True)
        ]
        found.add(arrived, took)
        assert found.summary()[1].named is not lopsided


def test_ranks_without_a_part_are_left_out():
    found = SkewLog([0, 2])
    found.add([[0.0, 1.0], [9.0, 9.0], [0.0, 1.5]], [[0.1] * 2] * 3)
    assert [(each.rank, each.late) for each in found.summary()] == [(0, 0.0), (2, 0.5)]
