"""Run suites in PyTorch's style on ranks, its own tests among them."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from helpers import PATIENCE
from processes import Start
from testing.test_plugin import pytested

pytest.importorskip("expecttest", reason="PyTorch's base classes need expecttest")
pytestmark = [pytest.mark.timeout(300), pytest.mark.processes]
HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples/suites"


def run_suites(start: Start, folder: Path, *words: str, file: Path) -> tuple[dict[str, str], str]:
    """Run a file of tests; return the outcome or reason of each test, and pytest's output."""
    name = f"test_{file.name.removeprefix('test_')}"
    report = folder / "junit.xml"
    shutil.copy(file, folder / name)
    with pytested(start, folder, "-ra", f"--junitxml={report}", *words, files=(name,)) as run:
        _, out, err = run.finish(2 * PATIENCE)
    assert report.exists(), out + err
    cases = ET.parse(report).getroot().iter("testcase")  # noqa: S314 - our own file
    endings = {
        f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}": "; ".join(
            child.get("message", "") for child in case if child.tag in ("skipped", "failure")
        )
        for case in cases
    }
    return endings, out


def test_a_suite_with_its_own_base_class(start: Start, tmp_path: Path) -> None:
    endings, out = run_suites(start, tmp_path, file=EXAMPLES / "test_mean.py")
    assert endings == {
        "TestMean.test_mean": "",
        "TestMean.test_mean_on_gpus": "Need at least 2 CUDA devices",
        "TestMeanOfTwo.test_mean": "",
    }, out


def test_a_suite_on_the_base_class_of_pytorch(start: Start, tmp_path: Path) -> None:
    endings, out = run_suites(start, tmp_path, file=EXAMPLES / "test_broadcast.py")
    assert endings == {"TestBroadcast.test_broadcast": ""}, out


def test_tests_of_pytorch_itself(start: Start, tmp_path: Path) -> None:
    names = ("scatter_checks", "gather_checks", "test_reduce_group_sum", "sparse_all_reduce_sum")
    words = ["-k", f"({' or '.join(names)}) and not cuda"]
    endings, out = run_suites(start, tmp_path, *words, file=EXAMPLES / "test_torch.py")
    of = {name.partition(".")[2]: ending for name, ending in endings.items()}
    assert of == {
        "test_scatter_checks": "",
        "test_gather_checks": "",
        "test_sparse_all_reduce_sum": "",
        "test_reduce_group_sum": "Skipped due to small world size.",
    }, out


def test_failures_have_the_line_of_the_test(start: Start, tmp_path: Path) -> None:
    from torch.testing._internal.common_distributed import TEST_SKIPS

    endings, out = run_suites(start, tmp_path, file=HERE / "samples/suites.py")
    for name, skip in TEST_SKIPS.items():
        assert endings.pop(f"TestSkips.test_{name}") == skip.message
    failures = {name: ending.splitlines()[0] for name, ending in endings.items() if ending}
    assert failures == {
        "TestEnds.test_wrong": "AssertionError: Tensor-likes are not close!",
        "TestEnds.test_leaves": "Rank 0 exited before call 1 of group [0, 1] (number 2 with these "
        "ranks), in which other ranks are waiting.",
        "TestEnds.test_exits": "SystemExit: 5",
        "TestEnds.test_skips": "not on this machine",
        "TestOtherSize.test_size": "Failed: TestOtherSize has world_size 3, but the mark is "
        "ranks(2).",
    }, out
    assert {"TestEnds.test_exits_well", "TestOwnMark.test_size"} <= endings.keys()
    lines = (HERE / "samples/suites.py").read_text(encoding="utf-8").splitlines()
    wrong = next(number for number, line in enumerate(lines, 1) if "# wrong" in line)
    left = next(number for number, line in enumerate(lines, 1) if "# alone" in line)
    assert f"test_suites.py:{wrong}: AssertionError" in out
    assert f"  rank 1  all_reduce(SUM, float32[2])  test_suites.py:{left} in test_leaves" in out


def test_a_mismatch_in_a_test_of_pytorch_has_its_line(start: Start, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(
        (EXAMPLES / "test_torch.py").read_text(encoding="utf-8")
        + "\nbuild = distributed_test._build_tensor\n"
        "distributed_test._build_tensor = lambda size, *words, **options: build(\n"
        "    size + distributed_test.dist.get_rank(), *words, **options\n"
        ")\n"
    )
    endings, out = run_suites(start, tmp_path, "-k", "test_all_reduce_min", file=broken)
    assert [text for text in endings.values() if "the sizes don't match" in text], out
    assert "all_reduce(MIN, float32[4, 4, 4])  torch/testing/_internal/distributed/" in out


def run_folder(start: Start, folder: Path) -> tuple[int, str]:
    """Run pytest over all tests of a folder that has a conftest.py."""
    words = ("-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider", str(folder))
    code, out, _ = start("python", *words, cwd=folder).finish(2 * PATIENCE)
    return code, out


def test_a_conftest_converts_a_whole_suite(start: Start, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "whole", tmp_path / "whole")
    tests = tmp_path / "whole/test_unchanged.py"
    text = tests.read_text(encoding="utf-8").replace("src=1", "src=self.rank")
    tests.write_text(text, encoding="utf-8")
    code, out = run_folder(start, tmp_path / "whole")
    assert (code, "1 failed, 1 passed" in out) == (1, True), out
    assert "the ranks pass different roots." in out


def test_processes_that_a_test_starts_are_recorded(start: Start, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "recorded", tmp_path / "recorded")
    tests = tmp_path / "recorded/test_started.py"
    text = tests.read_text(encoding="utf-8")
    text, _, _ = text.partition("class TestProcesses")  # each process takes long to start
    text = text.replace("all_reduce(torch.ones(2))", "all_reduce(torch.ones(2), OPS[rank])")
    ops = "OPS = dist.ReduceOp.SUM, dist.ReduceOp.MAX\n"
    tests.write_text(text.replace("PROGRAM =", f"{ops}PROGRAM =", 1), encoding="utf-8")
    code, out = run_folder(start, tmp_path / "recorded")
    assert (code, "2 passed, 1 error" in out) == (1, True), out
    assert "the ranks pass different ReduceOps." in out


def test_tests_of_rpc_of_pytorch_itself(start: Start, tmp_path: Path) -> None:
    words = ["-k", "test_rpc_return or test_dynamic_rpc_init_rpc_without_rank"]
    endings, out = run_suites(start, tmp_path, *words, file=EXAMPLES / "test_torch_rpc.py")
    assert endings == {
        "TensorPipeRpcTest.test_rpc_return_rref": "",
        "TensorPipeTensorPipeAgentRpcTest.test_dynamic_rpc_init_rpc_without_rank": "",
    }, out
