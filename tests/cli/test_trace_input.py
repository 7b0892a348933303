"""Every command line of ``trace`` that can't be carried out; no rank starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from helpers import distdemo
from refusals import refused, refused_as_document

BAD = {
    "an op that there is not": ("trace all-reduec", ["'all-reduec'", "distdemo trace all-reduce"]),
    "an op that has no algorithm": ("trace barrier", ["barrier", "all-to-all", "trace all-reduce"]),
    "a pair": ("trace p2p", ["No algorithm of p2p", "explain p2p"]),
    "an algorithm for an op": ("trace bruck", ["no operation", "all-gather, all-to-all"]),
    "an unknown algorithm": (
        "trace -a rnig",
        ["of all-reduce 'rnig'", "naive", "--algorithm ring"],
    ),
    "another op's algorithm": ("trace gather -a pairwise", ["gather 'pairwise'", "flat"]),
    "no algorithm": ("trace -a ,", ["names nothing", "halving-doubling"]),
    "two algorithms at once": ("trace -a ring,naive", ["one at a time", "--compare"]),
    "chunks of an algorithm that has its own": ("trace --chunks 8", ["ring", "broadcast chain"]),
    "chunks where another one could": (
        "trace broadcast -a tree,flat --chunks 8 --compare",
        ["tree, flat of broadcast cut", "--algorithm chain"],
    ),
    "no chunk": ("trace reduce -a chain --chunks 0", ["--chunks 0", "1 to 4,096"]),
    "chunks beyond reason": ("trace reduce -a chain --chunks 5000", ["--chunks 5000", "4,096"]),
    "a half chunk": ("trace broadcast -a chain --chunks 1.5", ["--chunks 1.5", "--chunks 8"]),
    "more than anybody looks at": ("trace -n 200", ["398 rounds", "40,000 chunks", "--simulate"]),
    "a root of an op without": ("trace --root 1", ["--root means nothing to all-reduce"]),
    "a root that is not there": ("trace reduce --root 4", ["--root 4", "0 to 3"]),
    "a reduce op of an op without": (
        "trace scatter --reduce-op max",
        ["--reduce-op means nothing"],
    ),
    "an unknown reduce op": ("trace --reduce-op summ", ["'summ'", "--reduce-op sum"]),
    "a factor of a sum": ("trace --factor 3", ["--factor", "premul_sum"]),
    "an average of whole numbers": (
        "trace --reduce-op avg --dtype int32",
        ["reduce int32 by avg", "rarely one", "bfloat16"],
    ),
    "bits of floats": ("trace --reduce-op band", ["float32 by band", "whole numbers", "int8"]),
    "an order of complex numbers": (
        "trace --compare --dtype c64 --reduce-op max --size 1K",
        ["complex64 by max", "no order"],
    ),
    "what torch does not add": (
        "trace --dtype float8_e4m3fn",
        ["can't reduce float8_e4m3fn by sum", "by themselves"],
    ),
    "what torch can't add up": (
        "trace --compare --dtype uint16",
        ["reduce uint16", "int32, int64, bool"],
    ),
    "a size and a shape": ("trace --size 1K --shape 4", ["--size and --shape", "Take one"]),
    "a size and values": ("trace --size 1K --values 1,2", ["--size and --values"]),
    "two sizes of one run": ("trace --size 1K,1M", ["one at a time", "--size 1K", "--compare"]),
    "half an element": ("trace --size 10", ["--size 10", "4 bytes", "--size 8 or --size 12"]),
    "no size": ("trace --compare --size ,", ["--size names nothing"]),
    "nothing to send": ("trace --size 0", ["--size 0", "--size 4"]),
    "no number": ("trace --size 8Q", ["--size 8Q", "no number of bytes"]),
    "less than a part": ("trace all-gather -n 3 --size 8", ["12 bytes at least", "--size 12"]),
    "sizes without end": (f"trace --simulate --size {','.join(['4'] * 51)}", ["50 at most"]),
    "more than fits": ("trace --compare --size 512G", ["need", "free", "smaller --size"]),
    "two ways at once": ("trace --compare --simulate", ["--compare and --simulate", "Take one"]),
    "an animated contest": ("trace --compare --animate", ["--animate and --compare", "one run"]),
    "a spoiled contest": ("trace --compare --spoil drop", ["--spoil and --compare"]),
    "a page of a contest": ("trace --compare --html a.html", ["--html and --compare"]),
    "a shape on paper": ("trace --simulate --shape 4", ["--shape and --simulate", "--size"]),
    "a backend on paper": (
        "trace --simulate -b mpi",
        ["--backend and --simulate", "nothing is run"],
    ),
    "values on paper": (
        "trace --simulate --fill 1",
        ["--fill and --simulate", "on paper there are none"],
    ),
    "values of a contest": (
        "trace --compare --seed 1",
        ["--seed and --compare", "filled to be verified"],
    ),
    "values of a list": ("trace --list --values 1", ["--values and --list", "same for every run"]),
    "an animated verdict": ("trace --animate -q", ["--animate and --quiet", "The verdict alone"]),
    "ranks with a suffix": ("trace --simulate -n 1M", ["plain digits", "Try -n 1000000."]),
    "ranks with a small suffix": (
        "trace -n 64k",
        ["--world-size 64k", "Try -n 64000 or -n 65536."],
    ),
    "ranks of a contest with a suffix": ("trace --compare -n 9M", ["Try -n 1000000."]),
    "ranks of a table": ("trace --compare --ranks 0", ["--ranks and --compare"]),
    "a budget for a single run": ("trace --budget 3", ["--budget", "without --compare"]),
    "no budget": ("trace --compare --budget 0", ["--budget 0", "--budget 2"]),
    "a plot of one run": ("trace --plot a.svg", ["--plot", "without --compare or --simulate"]),
    "a model for one run": ("trace --alpha 5us", ["--alpha", "without --compare or --simulate"]),
    "a speed of nothing": ("trace --speed 2", ["--speed", "without --animate"]),
    "no speed": ("trace --animate --speed 0", ["--speed 0", "--speed 2"]),
    "settings of a list": ("trace --list -n 5", ["--world-size and --list", "same for every run"]),
    "a format of a list": ("trace --list --format csv", ["'csv'", "--format table"]),
    "one rank compared": ("trace --compare -n 1", ["--world-size 1", "sends nothing"]),
    "one rank on paper": ("trace --simulate -n 1", ["--world-size 1", "sends nothing"]),
    "ranks beyond counting": ("trace --simulate -n 1000001", ["1,000,001", "1,000,000 at most"]),
    "messages beyond counting": (
        "trace reduce --simulate -a chain -n 1000000 --chunks 101",
        ["101,000,000 messages", "--chunks 100"],
    ),
    "a page of several algorithms": (
        "trace --simulate --html a.html",
        ["which?", "Add --algorithm"],
    ),
    "a page of too many ranks": (
        "trace --simulate -a ring -n 65 --html a.html",
        ["65 ranks: 64 at most"],
    ),
    "half a model": ("trace --simulate --alpha 5us", ["--alpha without --beta", "Add --beta"]),
    "the other half": ("trace --simulate --beta 1GB/s", ["--beta without --alpha", "Add --alpha"]),
    "no time": ("trace --simulate --alpha 5x --beta 1ns", ["--alpha 5x", "no time"]),
    "a time without a unit": (
        "trace --compare --alpha 5 --beta 1ns",
        ["--alpha 5 has no unit", "--alpha 5us"],
    ),
    "a byte without a unit": (
        "trace --simulate --alpha 1us --beta 5",
        ["--beta 5 has no unit", "5 s a byte", "--beta 0.1ns or --beta 10GB/s"],
    ),
    "no bandwidth": ("trace --simulate --alpha 1us --beta 5xB/s", ["--beta 5xB/s", "10GB/s"]),
    "bits or bytes": ("trace --simulate --alpha 1us --beta 10Gb/s", ["--beta 10Gb/s", "Gbit/s"]),
    "a bandwidth of nothing": ("trace --simulate --alpha 1us --beta 0GB/s", ["--beta 0GB/s"]),
    "a model of nothing": ("trace --simulate --alpha 0 --beta 0", ["both 0"]),
    "two models": ("trace --simulate --fit a.json --alpha 5us", ["--fit and --alpha"]),
    "a model that is not there": ("trace --simulate --fit no.json", ["no.json", "no such file"]),
    "a model that is no measurement": ("trace --simulate --fit pyproject.toml", ["no JSON"]),
    "an unknown fault": ("trace --spoil dorp", ["'dorp'", "--spoil drop"]),
    "a fault in no round": ("trace --spoil drop:99", ["no round 99", "6 rounds"]),
    "a fault before all rounds": ("trace --spoil drop:0", ["no round 0"]),
    "a fault of nobody": ("trace --spoil drop:1:7", ["--spoil 7", "0 to 3"]),
    "a fault of who is silent": ("trace broadcast --spoil drop:1:3", ["Rank 3 sends nothing"]),
    "a fault that changes nothing": ("trace --spoil twice:5", ["Round 5 copies", "--spoil drop"]),
    "no wrong neighbour": ("trace -n 2 --spoil neighbour:1", ["no wrong neighbour", "-n 3"]),
    "too much of a fault": ("trace --spoil drop:1:2:3", ["too much", "KIND:ROUND:RANK"]),
    "a fault of a single rank": ("trace -n 1 --spoil drop", ["Nothing here can be spoiled"]),
    "an ending that says nothing": ("trace --output result", ["ending", "result.json"]),
    "a page that is none": ("trace --html a.svg", ["a.svg", ".html"]),
    "a picture of another kind": ("trace --compare --plot a.gif", ["a.gif", ".png, .svg"]),
    "a folder that is not there": ("trace --html no/such/a.html", ["can't be written"]),
    "one file for two things": (
        "trace --html same.html --plot same.html --simulate -a ring",
        ["--html and --plot both name"],
    ),
    "an option of another command": ("trace --epochs 3", ["--epochs means nothing to trace"]),
}


pytestmark = pytest.mark.usefixtures("no_rank_starts")


@pytest.mark.parametrize("name", BAD)
def test_it_is_refused_with_what_why_and_what_to_try(name, command):
    line, words = BAD[name]
    told = refused(command, line)
    for word in words:
        assert word in told


@pytest.mark.parametrize("name", list(BAD)[::8])
def test_it_is_a_valid_document_with_format_json(name, command):
    line, words = BAD[name]
    document = refused_as_document(command, line)
    assert document["command"] == "trace"
    assert words[0] in " ".join(document["errors"][0].values())


def test_a_document_is_not_played(command):
    (error,) = refused_as_document(command, "trace --animate")["errors"]
    assert error["what"] == "--animate and --format json don't go together."
    assert error["hint"] == "Leave out --animate, or --format json."


def test_paper_and_lists_need_no_torch_and_start_nothing(tmp_path):
    """In one process, which imports torch for none of these."""
    lines = [
        ["trace", "--list"],
        ["trace", "--simulate", "-n", "5", "--alpha", "5us", "--beta", "10GB/s"],
        ["trace", "--simulate", "-a", "ring", "--html", str(tmp_path / "ring.html"), "-q"],
        ["trace", "-a", "rnig"],
    ]
    code = (
        "import sys; from distdemo.cli.main import run\n"
        f"codes = [run(line) for line in {lines!r}]\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "assert codes == [0, 0, 0, 2], codes"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (
        (tmp_path / "ring.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    )


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("distdemo trace ", {"all-reduce", "broadcast", "all-to-all"}),
        ("distdemo trace all-reduce --algorithm ", {"ring", "naive", "halving-doubling"}),
        ("distdemo trace -a ri", {"ring"}),
        ("distdemo trace --spoil ", {"drop", "neighbour", "twice"}),
    ],
)
def test_the_shell_completes_ops_algorithms_and_faults(words, offered):
    environment = {
        **os.environ,
        "_DISTDEMO_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = distdemo(env=environment)
    assert offered <= set(done.stdout.split())
