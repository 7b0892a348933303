"""Every command line that can't be carried out: exit 2, what and why and what to try, no rank."""

from __future__ import annotations

import pytest
from refusals import refused, refused_as_document

BAD = {
    "an unknown command": ("all-reduec", ["There is no command", "distdemo all-reduce"]),
    "an unknown option": ("all-reduce --worldsize 4", ["--worldsize", "--help"]),
    "an option without its value": ("all-reduce -n", ["requires an argument"]),
    "a surplus argument": ("all-reduce 4", ["unexpected"]),
    "an unknown op to explain": ("explain scater", ["'scater'", "distdemo explain scatter"]),
    "an unknown backend": ("all-reduce -b glo", ["'glo'", "--backend gloo"]),
    "an unknown dtype": ("all-reduce --dtype flaot32", ["'flaot32'", "--dtype float32"]),
    "an unknown device": ("all-reduce --device cdua", ["'cdua'", "--device cuda"]),
    "an unknown reduce op": ("reduce --reduce-op maxx", ["'maxx'", "--reduce-op max"]),
    "an unknown pattern": ("p2p --pattern rign", ["'rign'", "--pattern ring"]),
    "an unknown start method": ("all-reduce --start-method frok", ["'frok'", "fork"]),
    "an unknown format": ("all-reduce --format jsn", ["'jsn'", "--format json"]),
    "a root outside": ("broadcast --root 4", ["--root 4", "0 to 3", "--world-size 5"]),
    "a negative root": ("gather --root -1", ["--root -1", "0 to 3"]),
    "a root that is no number": ("scatter --root first", ["first", "whole number"]),
    "a src outside": ("p2p --src 2", ["--src 2", "0 to 1"]),
    "a dst outside": ("p2p --dst 7", ["--dst 7", "0 to 1"]),
    "src equal to dst": ("p2p --src 1 --dst 1", ["both 1", "--dst 0"]),
    "a sender in a ring": ("p2p --pattern ring --src 0", ["--src", "ring"]),
    "one rank for p2p": ("p2p -n 1", ["2 at least", "itself"]),
    "no rank": ("all-reduce -n 0", ["--world-size 0", "at least"]),
    "fewer than no rank": ("all-reduce -n -3", ["--world-size -3"]),
    "a number of ranks that is none": ("all-reduce -n four", ["four", "whole number"]),
    "half a rank": ("all-reduce -n 2.5", ["2.5", "whole number"]),
    "more ranks than fit": ("all-reduce -n 100000000", ["100,000,000", "at most", "a rank"]),
    "more than a number holds": ("all-reduce -n " + "9" * 400, ["at most"]),
    "rows of unequal length": (
        "all-reduce --values 1,2 --values 3",
        ["row 0 has 2 numbers", "row 1 has 1 number"],
    ),
    "values that are no numbers": ("all-reduce --values 1,b --values 2,3", ["'b'", "number"]),
    "values too large": ("all-reduce --dtype int8 --values 300 --values 1", ["300", "127"]),
    "values too small": ("all-reduce --dtype uint8 --values -1 --values 1", ["-1", "0 to 255"]),
    "fractions in whole numbers": ("all-reduce --dtype int32 --values 1.5 --values 1", ["1.5"]),
    "a number that would be rounded": (
        "all-reduce --values 16777217 --values 1",
        ["16777217", "16777216"],
    ),
    "complex values in real numbers": ("all-reduce --values 1+2j --values 1", ["complex"]),
    "too few rows": ("all-reduce -n 3 --values 1 --values 2", ["2 rows", "3 ranks"]),
    "too many rows": ("all-reduce -n 2 --values 1 --values 2 --values 3", ["3 rows", "2 ranks"]),
    "too few pieces": ("scatter -n 3 --values 1 --values 2", ["2 rows", "piece"]),
    "a missing file": ("all-reduce --values no-such-file", ["no-such-file", "no file"]),
    "a folder as a file": ("all-reduce --values /", ["can't be read"]),
    "values and fill": ("all-reduce --values 1 --values 2 --fill 1", ["--fill", "--values"]),
    "a fill that is no number": ("all-reduce --fill ones", ["ones", "--fill 1"]),
    "an empty shape": ("all-reduce --shape ,", ["--shape", "empty"]),
    "a negative shape": ("all-reduce --shape 2,-3", ["-3", "length"]),
    "a shape of no element": ("all-reduce --shape 0", ["0", "no length"]),
    "a shape of no numbers": ("all-reduce --shape big", ["big", "whole number"]),
    "a shape larger than memory": ("all-reduce --shape 1000000000000", ["TiB", "--shape"]),
    "a shape that values don't fill": (
        "all-reduce --shape 2,2 --values 1,2 --values 3,4",
        ["4 elements", "2 a rank"],
    ),
    "the average of whole numbers": ("all-reduce --reduce-op avg --dtype int64", ["whole numbers"]),
    "bits of floats": ("reduce --reduce-op bxor", ["Bitwise", "int32"]),
    "the order of complex numbers": ("reduce --reduce-op min --dtype complex64", ["complex"]),
    "the sum of bools": ("all-reduce --dtype bool", ["256 times"]),
    "a dtype that gloo has not": ("broadcast --dtype int16", ["int16", "int32"]),
    "nccl without a GPU": ("all-reduce --backend nccl", ["GPU", "gloo"]),
    "cuda without a GPU": ("all-reduce --device cuda", ["GPU"]),
    "a backend for another device": ("all-reduce -b nccl --device cpu", ["nccl", "cpu"]),
    "a backend that torch was built without": ("all-reduce --backend ucc", ["built without"]),
    "no time": ("all-reduce --timeout 0", ["--timeout 0", "positive"]),
    "negative time": ("all-reduce --timeout -5", ["--timeout -5"]),
    "endless time": ("all-reduce --timeout inf", ["--timeout inf"]),
    "a time that is no number": ("all-reduce --timeout soon", ["--timeout soon"]),
    "ranks to show that are not there": ("all-reduce --ranks 0,9", ["9", "0 to 3"]),
    "ranks backwards": ("all-reduce --ranks 3-1", ["backwards", "1-3"]),
    "a flag of another op": (
        "all-gather --root 1",
        ["--root means nothing to all-gather", "broadcast"],
    ),
    "a flag of another op to explain": ("explain all-gather --root 1", ["--root", "all-gather"]),
    "a group with a rank twice": ("all-reduce --group 1,3,1", ["rank 1", "twice", "--group 0,1"]),
    "a group with a rank twice by a range": ("all-reduce --group 0-2,1", ["rank 1", "twice"]),
    "a group outside": ("all-reduce -n 3 --group 1,3", ["--group 3", "0 to 2"]),
    "a group of one": ("all-reduce --group 2", ["group of one rank", "nobody"]),
    "a group of no number": ("all-reduce --group a,b", ["--group a", "whole number"]),
    "a group of digits that are none": ("all-reduce --group 1,²", ["--group ²", "whole number"]),
    "a group backwards": ("all-reduce --group 3-1", ["backwards", "1-3"]),
    "a root outside its group": ("broadcast --group 1,3 --root 3", ["--root 3", "0 to 1"]),
    "a group and a split": ("all-reduce --group 0,1 --split 2", ["--group", "--split"]),
    "a split that leaves ranks over": ("all-reduce -n 5 --split 2", ["5 ranks", "equal size"]),
    "a split by a remainder likewise": ("all-reduce -n 5 --split %2", ["5 ranks"]),
    "a split in groups likewise": ("all-reduce -n 5 --split /2", ["5 ranks"]),
    "a split into groups of one": ("all-reduce --split 4", ["one rank", "--world-size 8"]),
    "a split in ones": ("all-reduce --split /1", ["one rank", "--split /2"]),
    "a split in no groups": ("all-reduce --split 0", ["--split 0", "One at least"]),
    "a split of no number": ("all-reduce --split %two", ["two", "whole number"]),
    "splits that are not the shape": (
        "all-to-all -n 3 --splits 1,2,3 --shape 7",
        ["1,2,3", "add up to 6", "has 7"],
    ),
    "splits that are not the values": (
        "all-to-all -n 2 --splits 1,2 --values 1,2,3 --values 1,2",
        ["1,2", "add up to 3", "rank 1 has 2"],
    ),
    "splits of a scalar": ("all-to-all -n 2 --splits 1,2 --shape scalar", ["add up to 3"]),
    "too many splits": ("all-to-all -n 2 --splits 1,2,3", ["3 parts for 2 ranks"]),
    "splits of some ranks alone": (
        "all-to-all -n 3 --splits 1,2,3 --splits 3,2,1",
        ["2 times for 3 ranks", "once for all"],
    ),
    "negative splits": ("all-to-all -n 2 --splits 1,-1", ["-1", "0 or more"]),
    "splits of no numbers": ("all-to-all -n 2 --splits 1,a", ["--splits a", "whole number"]),
    "splits of nothing": ("all-to-all -n 2 --splits 0,0", ["0,0", "no element"]),
    "splits as a list where gloo has none": (
        "all-to-all -n 2 --splits 1,2 --variant list",
        ["all_to_all_single"],
    ),
    "too few sizes": ("all-gather -n 3 --uneven --sizes 3,0", ["2 lengths for 3 ranks"]),
    "negative sizes": ("all-gather --uneven --sizes 3,-1", ["-1", "0 or more"]),
    "sizes of nothing": ("all-gather --uneven --sizes 0,0", ["0,0", "no element"]),
    "sizes that are not the values": (
        "all-gather --sizes 2,1 --values 1,2 --values 1,2",
        ["--sizes 2,1", "--values"],
    ),
    "uneven and a shape": ("all-gather --uneven --shape 3", ["--shape", "--sizes"]),
    "uneven and async": ("all-gather --uneven --async", ["--async", "--uneven"]),
    "uneven and a single tensor": (
        "all-gather --uneven --variant single",
        ["--uneven", "--variant single"],
    ),
    "an unknown variant": ("all-gather --variant lsit", ["'lsit'", "--variant list"]),
    "an object that is no JSON": (
        "broadcast --objects --values \"{'a': 1}\"",
        ["{'a': 1}", "JSON", "double quotes"],
    ),
    "a line that is no JSON": ("broadcast --objects --values text --values 2", ["text", "JSON"]),
    "neither JSON nor a file": ("broadcast --objects --values nofile", ["nofile", "file"]),
    "objects that are cut off": ("broadcast --objects --values [1,2", ["[1,2", "JSON"]),
    "too few objects": ("all-gather --objects -n 3 --values 1 --values 2", ["2 rows", "3 ranks"]),
    "objects and a dtype": ("broadcast --objects --dtype int8", ["--dtype", "--objects"]),
    "objects and a shape": ("broadcast --objects --shape 3", ["--shape", "--objects"]),
    "objects and a fill": ("gather --objects --fill 3", ["--fill", "--objects"]),
    "objects and a seed": ("gather --objects --seed 3", ["--seed", "--objects"]),
    "objects and async": ("broadcast --objects --async", ["--async", "--objects"]),
    "objects and a single tensor": (
        "all-gather --objects --variant single",
        ["--variant", "--objects"],
    ),
    "objects without blocking": ("p2p --objects --nonblocking", ["--nonblocking", "--objects"]),
    "objects in a ring": ("p2p --objects --pattern ring", ["--pattern", "--objects"]),
    "a sender in an exchange": ("p2p --pattern exchange --src 0", ["--src", "exchange"]),
    "a straggler without its time": ("barrier --straggler 1", ["--straggler 1", "1:0.5"]),
    "a straggler that is not late": ("barrier --straggler 1:0", ["--straggler 1:0", "RANK:SEC"]),
    "a straggler of words": ("barrier --straggler 1:soon", ["1:soon", "RANK:SECONDS"]),
    "an endless straggler": ("barrier --straggler 1:inf", ["1:inf", "RANK:SECONDS"]),
    "a straggler outside": ("barrier --straggler 4:1", ["--straggler 4", "0 to 3"]),
    "a monitored barrier and async": ("barrier --monitored --async", ["--async", "--monitored"]),
    "values for a barrier": ("barrier --values 1", ["--values", "barrier"]),
    "a dtype for a barrier": ("barrier --dtype int8", ["--dtype", "barrier"]),
    "a seed that is none": ("all-reduce --seed lucky", ["lucky", "--seed 1"]),
    "a negative seed": ("all-reduce --seed -1", ["--seed -1", "out of range"]),
    "a seed that is too large": ("all-reduce --seed 2147483647", ["out of range"]),
    "a seed and values": ("all-reduce --seed 1 --values 1 --values 2", ["--seed", "your own"]),
    "a seed and a fill": ("all-reduce --seed 1 --fill 2", ["--seed", "your own"]),
    "a factor of a sum": ("all-reduce --factor 3", ["--factor", "premul_sum"]),
    "a factor that is none": (
        "all-reduce --reduce-op premul_sum --factor big",
        ["--factor big", "no number"],
    ),
    "a pre-multiplied sum over gloo": ("all-reduce --reduce-op premul_sum", ["NCCL"]),
    "the straggler of another op": ("all-reduce --straggler 1:1", ["--straggler means nothing"]),
    "the splits of another op": ("all-gather --splits 1,2", ["--splits means nothing"]),
    "the sizes of another op": ("gather --sizes 1,2", ["--sizes", "gather"]),
    "the objects of another op": ("reduce --objects", ["--objects means nothing to reduce"]),
    "the variant of another op": ("scatter --variant list", ["--variant means nothing"]),
    "the pattern of another op": ("gather --pattern ring", ["--pattern means nothing"]),
    "objects to explain where there are none": ("explain reduce --objects", ["--objects means"]),
    "an unknown launcher": ("all-reduce --launcher torchrum", ["'torchrum'", "torchrun"]),
    "an engine that did not start this": ("hello --launcher mpi", ["no rank of mpi", "mpiexec -n"]),
    "another engine that did not": ("check --launcher slurm", ["no rank of slurm", "srun -n"]),
    "a node that is not told which it is": (
        "all-reduce --nnodes 2 --master 127.0.0.1",
        ["--node-rank is missing", "--node-rank 1 on the other"],
    ),
    "a node that is only told where the first one is": (
        "hello --master 127.0.0.1:29500",
        ["--nnodes and --node-rank are missing"],
    ),
    "a node that does not know where to go": (
        "check --nnodes 2 --node-rank 1",
        ["--master is missing"],
    ),
    "no node": ("all-reduce --nnodes 0 --node-rank 0 --master h", ["--nnodes 0", "one at least"]),
    "half a node": ("all-reduce --nnodes 1.5 --node-rank 0 --master h", ["--nnodes 1.5", "whole"]),
    "a node that there is not": (
        "all-reduce --nnodes 2 --node-rank 2 --master h",
        ["--node-rank 2", "from 0 to 1", "--node-rank 1"],
    ),
    "a node before the first": (
        "all-reduce --nnodes 2 --node-rank -1 --master h",
        ["--node-rank -1", "from 0 to 1"],
    ),
    "fewer ranks than nodes": (
        "all-reduce -n 2 --nnodes 3 --node-rank 0 --master h",
        ["--world-size 2", "3 nodes", "--world-size 3"],
    ),
    "nodes for an engine": (
        "all-reduce --launcher torchrun --nnodes 2 --node-rank 0 --master h",
        ["--nnodes and --launcher torchrun", "Leave out one"],
    ),
    "a master that is no address": (
        "all-reduce --nnodes 2 --node-rank 0 --master 10.0.0.1:x",
        ["'10.0.0.1:x' is no address", "10.0.0.1:29500"],
    ),
    "a port that there is not": (
        "all-reduce --nnodes 2 --node-rank 0 --master h:70000",
        ["no port 70000", "h:29500"],
    ),
    "a port that nobody could know": (
        "all-reduce --nnodes 2 --node-rank 0 --master h:0",
        ["--master h:0", "0 is no port", "h:29500"],
    ),
    "several sizes for the one world of several nodes": (
        "check -n 2,4 --nnodes 2 --node-rank 0 --master h",
        ["--world-size 2,4", "one world"],
    ),
    "nodes for what runs without ranks": ("explain scatter --nnodes 2", ["--nnodes"]),
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
    line, _ = BAD[name]
    if "--format" in line:
        line = line.replace("--format jsn", "")
        line += " --root 99"
    if line.endswith(" -n"):
        pytest.skip("the value that is missing would be --format")
    assert refused_as_document(command, line)["command"] == line.split()[0]


def test_a_file_of_values_with_a_bad_line_names_the_line(command, tmp_path):
    file = tmp_path / "values.txt"
    file.write_text("# two ranks\n1 2 3\n4 five 6\n")
    code, _, err = command("all-reduce", "--values", str(file))
    assert code == 2
    assert "line 3" in " ".join(err.split())
    assert "'five'" in err


def test_an_empty_file_of_values_is_refused(command, tmp_path):
    file = tmp_path / "values.txt"
    file.write_text("\n# nothing\n")
    code, _, err = command("all-reduce", "--values", str(file))
    assert code == 2
    assert "no line of numbers" in " ".join(err.split())


def test_a_file_that_is_no_text_is_refused(command, tmp_path):
    file = tmp_path / "values.bin"
    file.write_bytes(b"\xff\xfe\x00\x01")
    code, _, err = command("all-reduce", "--values", str(file))
    assert code == 2
    assert "can't be read" in " ".join(err.split())
