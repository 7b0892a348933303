"""Every command line of ``bench`` and ``bench links`` that can't be carried out; no rank starts."""

from __future__ import annotations

import json
import os

import pytest
from helpers import distdemo
from refusals import refused, refused_as_document

BAD = {
    "an op that there is not": ("bench all-reduec", ["'all-reduec'", "bench all-reduce"]),
    "a second word that there is not": ("bench lnks", ["'lnks'", "distdemo bench links"]),
    "a second word alone": ("links", ["'links'", "distdemo bench links"]),
    "an op after options": ("bench -n 2 --iters 3 sctter", ["'sctter'", "bench scatter"]),
    "no size": ("bench -b 8Q", ["-b 8Q", "no number of bytes", "64K"]),
    "a size cut in two": ("bench -b 10", ["-b 10", "4 bytes", "-b 8 or -b 12"]),
    "an end cut in two": ("bench -e 1.5K --dtype complex128 -b 100", ["-b 100", "-b 96"]),
    "a step cut in two": ("bench -i 6 -e 64", ["-i 6", "-i 4 or -i 8"]),
    "an empty range": ("bench -b 1M -e 1K", ["no size between", "-b 1K -e 1M"]),
    "no whole part": ("bench all-gather -n 3 -e 8", ["3 parts", "12 bytes", "-e 12"]),
    "a factor that does not grow": ("bench -f 1", ["-f 1", "grow", "-f 2"]),
    "a factor and a step": ("bench -f 2 -i 8", ["-f and -i", "Take one"]),
    "too many sizes": ("bench -i 8", ["sizes: 200 at most", "-i "]),
    "more than fits": ("bench -e 512G", ["needs", "largest size that fits", "Try -e"]),
    "more than there is": ("bench -e 9999999T", ["no machine", "1M"]),
    "sizes of a barrier": ("bench barrier -b 8", ["-b means nothing to barrier", "size 0"]),
    "a root for an op without": ("bench all-gather --root 1", ["--root means nothing"]),
    "no iteration": ("bench --iters 0", ["--iters 0", "1 to"]),
    "more iterations than anybody needs": (
        "bench --iters 10000000",
        ["--iters 10000000", "100,000"],
    ),
    "no end of warming up": ("bench --warmup 100001", ["--warmup 100001", "0 to 100,000"]),
    "a check never to come": ("bench --check-every 1000000", ["--check-every 1000000", "1 to"]),
    "more times than can be kept": (
        "bench all --iters 50000",
        ["--iters 50000 at", "2,000,000 at most", "Try --iters"],
    ),
    "a budget and a number": ("bench --iters 3 --budget 2", ["--budget and --iters"]),
    "no precision": ("bench --precision 0%", ["--precision 0%", "5%"]),
    "an unknown backend": ("bench --backend gloo,glo", ["'glo'", "gloo"]),
    "the letter of another command": ("bench -b gloo", ["-b gloo", "no number of bytes"]),
    "what gloo does not take": ("bench --dtype int16", ["gloo can't do all-reduce"]),
    "a backend that torch was built without": ("bench --backend ucc", ["built without"]),
    "a format that there is not": ("bench --format csvv", ["'csvv'", "--format csv"]),
    "an ending that says nothing": ("bench --output result", ["ending", "result.json"]),
    "a folder that is not there": ("bench --output no/such/a.json", ["can't be written"]),
    "a picture of another kind": ("bench --plot a.gif", ["a.gif", ".png, .svg, .html"]),
    "an option of another command": ("bench --epochs 3", ["--epochs means nothing to bench"]),
}


pytestmark = pytest.mark.usefixtures("no_rank_starts")


@pytest.mark.parametrize("name", BAD)
def test_it_is_refused_with_what_why_and_what_to_try(name, command):
    line, words = BAD[name]
    told = refused(command, line)
    for word in words:
        assert word in told


@pytest.mark.parametrize("name", BAD)
def test_it_is_a_valid_document_with_format_json(name, command):
    line, words = BAD[name]
    if "--format" in line:
        line, words = line.rpartition(" --format")[0] + " --device tpu", ["tpu"]
    document = refused_as_document(command, line)
    assert document["command"] == line.split()[0]
    assert words[0] in " ".join(document["errors"][0].values())


def test_one_file_for_two_things_is_refused(command, tmp_path):
    (tmp_path / "a.svg").symlink_to(tmp_path / "a.json")
    code, _, err = command("bench", "--output", f"{tmp_path}/a.json", "--plot", f"{tmp_path}/a.svg")
    assert code == 2
    assert "--output and --plot both name" in " ".join(err.split())


@pytest.mark.parametrize(
    "order", ["bench links --format json -n 1", "--format json bench links -n 1"]
)
def test_options_may_come_before_and_after_both_words(order, command):
    code, out, _ = command(*order.split())
    assert code == 2
    assert json.loads(out)["command"] == "bench links"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("distdemo bench ", {"all-reduce", "all", "links", "compare", "fit"}),
        ("distdemo bench links --ro", {"--rounds"}),
        ("distdemo bench scatter --pla", {"--placement"}),
    ],
)
def test_the_shell_completes_both_words_and_what_follows(words, offered):
    environment = {
        **os.environ,
        "_DISTDEMO_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = distdemo(env=environment)
    assert offered <= set(done.stdout.split())


def test_the_help_of_two_words_is_their_own(command):
    code, out, _ = command("bench", "links", "--help")
    assert code == 0
    assert "distdemo bench links [OPTIONS]" in out
    assert "--rounds" in out
    assert "--skew" not in out
