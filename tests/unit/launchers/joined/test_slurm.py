from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdemo.errors import UsageError
from distdemo.launcher.joined.slurm import find, hosts, port_of

STEP = {
    "SLURM_JOB_ID": "77",
    "SLURM_PROCID": "0",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_STEP_NODELIST": "n[1-3]",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node1", "node1"),
        ("node[01-04,7],gpu3", "node01 node02 node03 node04 node7 gpu3"),
        ("gpu3,node[9-11]", "gpu3 node9 node10 node11"),
        ("node[099-101]", "node099 node100 node101"),
        ("node[5]", "node5"),
        ("n[1-2]-ib", "n1-ib n2-ib"),
        ("rack[0-1]n[1-2]", "rack0n1 rack0n2 rack1n1 rack1n2"),
        ("n[1,2[3-4],x]", "n1 n23 n24 nx"),
        ("a b,c", "a b c"),
        ("a,,b", "a b"),
        ("node[3-1]", ""),
        ("node[1-2", ""),
        ("a,b[", "a"),
        ("node.example.org", "node.example.org"),
        ("", ""),
    ],
)
def test_a_list_of_hosts_is_read_as_slurm_writes_it(text: str, expected: str) -> None:
    assert list(hosts(text)) == expected.split()


def test_a_list_of_very_many_hosts_is_read_only_as_far_as_is_asked() -> None:
    assert list(islice(hosts("n[0-999999999]m[0-999999999]"), 3)) == ["n0m0", "n0m1", "n0m2"]


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 20)), min_size=1, max_size=4))
def test_what_a_list_stands_for_is_what_was_put_in(ranges: list[tuple[int, int]]) -> None:
    text = ",".join(f"{low:03}-{low + more:03}" for low, more in ranges)
    expected = [f"n{at:03}x" for low, more in ranges for at in range(low, low + more + 1)]
    assert list(hosts(f"n[{text}]x")) == expected


@given(st.text(alphabet="ab1-,[] ", max_size=20))
def test_any_text_is_read_to_an_end(text: str) -> None:
    assert len(list(islice(hosts(text), 1000))) < 1000 or "-" in text


def test_the_list_of_the_step_counts_before_that_of_the_job() -> None:
    both = {**STEP, "SLURM_JOB_NODELIST": "n[0-9]", "SLURM_NODELIST": "m[0-9]"}
    assert master(both) == "n1"
    del both["SLURM_STEP_NODELIST"]
    assert master(both) == "n0"
    del both["SLURM_JOB_NODELIST"]
    assert master(both) == "m0"
    assert master({**both, "MASTER_ADDR": "10.0.0.5"}) == "10.0.0.5"


def master(environ: dict[str, str]) -> str:
    seat = find(environ)
    assert seat is not None
    return seat.master


def test_without_a_readable_list_the_error_says_what_to_set() -> None:
    without = {key: value for key, value in STEP.items() if key != "SLURM_STEP_NODELIST"}
    with pytest.raises(UsageError, match="SLURM_STEP_NODELIST is not set") as caught:
        find(without)
    assert "MASTER_ADDR" in caught.value.hint
    for text in ("n[1-", "[]", "$(reboot)"):
        with pytest.raises(UsageError, match="SLURM_STEP_NODELIST is") as caught:
            find({**STEP, "SLURM_STEP_NODELIST": text})
        assert "MASTER_ADDR" in caught.value.hint
    assert find({**without, "MASTER_ADDR": "n1"}) is not None


@given(st.integers(0, 2**31 - 1), st.integers(0, 1000))
def test_the_port_is_in_its_range(job: int, step: int) -> None:
    port = port_of({"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)})
    assert 20000 <= port < 30000


def test_steps_and_jobs_side_by_side_have_ports_of_their_own() -> None:
    ports = {
        port_of({"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)})
        for job in range(5_000_000, 5_000_900)
        for step in range(9)
    }
    assert len(ports) == 900 * 9


def test_master_port_names_another_port() -> None:
    seat = find({**STEP, "MASTER_PORT": "4711"})
    assert seat is not None
    assert (seat.master, seat.port) == ("n1", 4711)


@pytest.mark.parametrize(
    ("text", "node", "expected"),
    [
        ("2(x3),1", 0, 2),
        ("2(x3),1", 2, 2),
        ("2(x3),1", 3, 1),
        ("2(x3),1", 4, 0),
        ("4", 0, 4),
        ("", 0, 0),
        ("8(x4000000000)", 1, 8),
    ],
)
def test_tasks_of_a_host(text: str, node: int, expected: int) -> None:
    seat = find({**STEP, "SLURM_STEP_TASKS_PER_NODE": text, "SLURM_NODEID": str(node)})
    assert seat is not None
    assert seat.local_size == expected


def test_what_slurm_does_not_tell_is_unknown() -> None:
    seat = find(STEP)
    assert seat is not None
    assert (seat.node, seat.local_rank, seat.local_size) == (-1, 0, 0)


def test_older_names_are_known() -> None:
    old = {
        "SLURM_JOBID": "77",
        "SLURM_STEPID": "2",
        "SLURM_PROCID": "1",
        "SLURM_NPROCS": "2",
        "SLURM_NODELIST": "n[1-3]",
    }
    seat = find(old)
    assert seat is not None
    assert (seat.rank, seat.world_size, seat.master, seat.job) == (1, 2, "n1", "77.2")
