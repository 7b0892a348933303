from __future__ import annotations

import io
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from asking import flags_of, refused, request, spec
from strategies import FORMS

from distdemo import ops
from distdemo.cli.option_table import OPTIONS
from distdemo.ops.contract import Form, Op
from distdemo.ops.spec import OpSpec

# ------------------------------------------------------------------------------------- any form


def typed(form: Form) -> dict[str, Any]:
    """The flags that choose this form, as the parser of the command line would give them."""
    words = shlex.split(form.flags)
    flags: dict[str, Any] = {}
    names = {f"--{name.replace('_', '-')}": name for name in OPTIONS}
    while words:
        name = names[words.pop(0)]
        flags[name] = words.pop(0) if words and not words[0].startswith("--") else True
    if "splits" in flags:
        flags["splits"] = ["1,0,2"]
    return flags


@pytest.mark.parametrize(("op", "form"), FORMS, ids=lambda each: each.name)
def test_the_flags_of_a_form_choose_it(op: Op, form: Form) -> None:
    if (op.name, form.name) == ("all_to_all", "uneven list"):
        assert "all_to_all_single" in refused(op.name, **typed(form)).why
        return
    asked = spec(op.name, **typed(form))
    assert op.form(asked) == form


@pytest.mark.parametrize(("op", "form"), FORMS, ids=lambda each: each.name)
def test_what_a_form_lacks_is_refused_with_it(op: Op, form: Form) -> None:
    other = {"dtype": "int8", "shape": "3", "fill": "1", "seed": "1", "variant": "single"}
    given: dict[str, Any] = other | {"pattern": "ring", "reduce_op": "max", "sizes": "1,2"}
    for name in form.lacks & set(flags_of(op)):
        error = refused(op.name, **typed(form), **{name: given.get(name, True)})
        assert "don't go together" in error.what


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter", "all_to_all"])
def test_a_variant_is_a_list_unless_it_is_asked_for(name: str) -> None:
    assert spec(name).variant == spec(name, variant="LIST").variant == "list"
    assert spec(name, variant="single").variant == "single"
    assert "no variant 'lsit'" in refused(name, variant="lsit").what


@pytest.mark.parametrize("name", ["reduce_scatter", "all_to_all"])
def test_values_are_cut_into_a_piece_for_each_rank(name: str) -> None:
    asked = spec(name, values=["1,2,3,4", "5,6,7,8"])
    assert (asked.group_size, asked.shape) == (2, (2,))
    assert spec(name, values=["1,2,3,4", "5,6,7,8"], shape="1,2").shape == (1, 2)
    assert "3 numbers a rank for 2 pieces" in refused(name, values=["1,2,3"] * 2).what
    assert "in each of 2 pieces" in refused(name, values=["1,2,3,4"] * 2, shape="3").what


# ------------------------------------------------------------------------------- uneven tensors


def test_uneven_tensors_are_by_default_as_long_as_the_rank_plus_one() -> None:
    asked = spec("all_gather", uneven=True)
    assert (asked.variant, asked.sizes, asked.shape) == ("uneven", (1, 2, 3, 4), (4,))


def test_sizes_ask_for_uneven_tensors_and_say_how_many_ranks_there_are() -> None:
    asked = spec("all_gather", sizes="3,0,7")
    assert (asked.group_size, asked.variant, asked.sizes) == (3, "uneven", (3, 0, 7))
    assert asked.shape == (7,)
    assert spec("all_gather", sizes="3,0,7", uneven=True) == asked


def test_values_of_unequal_length_say_the_sizes() -> None:
    asked = spec("all_gather", uneven=True, values=["1,2,3", "", "4"])
    assert (asked.sizes, asked.values) == ((3, 0, 1), ((1, 2, 3), (), (4,)))
    assert spec("all_gather", sizes="3,0,1", values=["1,2,3", "", "4"]) == asked


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"sizes": "3,0", "world_size": "3"}, "2 lengths for 3 ranks"),
        ({"sizes": "3,-1"}, "-1 is no length"),
        ({"sizes": "3,x"}, "no whole number"),
        ({"sizes": "0,0"}, "all lengths are 0"),
        ({"uneven": True, "values": ["", ""]}, "all lengths are 0"),
        ({"sizes": "2,2", "values": ["1,2", "1"]}, "--sizes 2,2"),
        ({"uneven": True, "shape": "3"}, "--shape"),
        ({"uneven": True, "async_op": True}, "--async"),
        ({"uneven": True, "variant": "single"}, "--variant single"),
    ],
)
def test_uneven_tensors_that_do_not_fit_are_refused(flags: Any, named: str) -> None:
    assert named in refused("all_gather", **flags).what


# --------------------------------------------------------------------------------- uneven parts


def test_splits_hold_for_all_ranks_or_for_one_each() -> None:
    asked = spec("all_to_all", splits=["1,0,2"])
    assert (asked.group_size, asked.variant) == (3, "single")
    assert (asked.splits, asked.shape) == (((1, 0, 2),) * 3, (3,))
    own = spec("all_to_all", splits=["1,0,2", "0,0,0", "4,4,4"])
    assert (own.splits, own.shape) == (((1, 0, 2), (0, 0, 0), (4, 4, 4)), (12,))


def test_the_shape_beside_splits_is_that_of_the_whole_tensor() -> None:
    assert spec("all_to_all", splits=["1,2"], shape="3,5").shape == (3, 5)
    asked = spec("all_to_all", splits=["1,2"], shape="3,2", values=["1,2,3,4,5,6"] * 2)
    assert asked.shape == (3, 2)


def test_values_of_unequal_length_go_with_splits_of_their_own() -> None:
    asked = spec("all_to_all", splits=["1,2", "0,1"], values=["1,2,3", "4"])
    assert asked.values == ((1, 2, 3), (4,))


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"splits": ["1,2,3"], "world_size": "2"}, "3 parts for 2 ranks"),
        ({"splits": ["1,2,3", "1,2,3"]}, "2 times for 3 ranks"),
        ({"splits": ["1,-2"]}, "-2 is no length"),
        ({"splits": ["1,b"]}, "no whole number"),
        ({"splits": [""], "world_size": "2"}, "no whole number"),
        ({"splits": ["0,0"]}, "all lengths are 0"),
        ({"splits": ["1,2"], "shape": "4"}, "add up to 3, but rank 0 has 4"),
        ({"splits": ["1,2"], "shape": "scalar"}, "add up to 3, but rank 0 has 0"),
        ({"splits": ["1,2"], "values": ["1,2,3", "1,2"]}, "add up to 3, but rank 1 has 2"),
        (
            {"splits": ["1,2"], "shape": "3,2", "values": ["1,2,3,4,5,6", "1,2,3"]},
            "6 elements, --values 3 on rank 1",
        ),
    ],
)
def test_splits_that_do_not_fit_are_refused(flags: Any, named: str) -> None:
    assert named in refused("all_to_all", **flags).what


# -------------------------------------------------------------------------------------- objects


def test_objects_are_json_and_have_no_shape() -> None:
    asked = spec("all_gather", objects=True, values=['{"a": [1, null]}', "2", '"ü"'])
    assert asked == OpSpec(
        "all_gather",
        3,
        shape=(),
        variant="list",
        objects=True,
        objects_json=('{"a": [1, null]}', "2", '"ü"'),
    )


def test_one_object_is_the_giver_s() -> None:
    assert spec(
        "broadcast", objects=True, root="1", values=["[1]"], world_size="3"
    ).objects_json == (
        None,
        "[1]",
        None,
    )
    assert spec("p2p", objects=True, values=["[1]"]).objects_json == ("[1]", None)


def test_objects_come_from_a_file_with_one_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "objects"
    file.write_text('# two ranks\n{"a": 1}\n\n[2]\n')
    assert spec("gather", objects=True, values=[str(file)]).objects_json == ('{"a": 1}', "[2]")
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n2\n"))
    assert spec("gather", objects=True, values=["-"]).objects_json == ("1", "2")
    file.write_text("1\n{'a': 1}\n")
    assert refused("gather", objects=True, values=[str(file)]).what.startswith(
        f"--values {file}, line 2"
    )


@pytest.mark.parametrize(
    "values", [["{'a': 1}"], ["[1,"], ["1", "x"], ["nofile"], ["1", "NaN,"], ["[" * 100_000]]
)
def test_what_is_no_json_is_refused(values: list[str]) -> None:
    error = refused("all_gather", objects=True, values=values, world_size=str(len(values)))
    assert "--values" in error.what


def test_an_object_keeps_its_meaning() -> None:
    given = {"nested": [{"deep": [1, 2.5, True, None]}], "text": 'with "quotes" and ü'}
    asked = spec("broadcast", objects=True, values=[json.dumps(given)])
    assert json.loads(asked.objects_json[0] or "") == given if asked.objects_json else False


# -------------------------------------------------------------------------------------- barriers


@pytest.mark.parametrize("text", ["1", "1:", "1:x", "1:0", "1:inf", "4:1", ":1"])
def test_a_straggler_that_is_none_is_refused(text: str) -> None:
    assert "--straggler" in refused("barrier", straggler=text).what


@pytest.mark.parametrize(("timeout", "patience"), [("30", 28), ("2", 1.5), ("0.4", 0.2)])
def test_a_monitored_barrier_speaks_up_before_the_time_is_over(
    timeout: str, patience: float
) -> None:
    assert (
        request("barrier", monitored=True, timeout=timeout).specs[0].monitor_timeout_s == patience
    )


# ------------------------------------------------------------------------------ seed and factor


def test_a_seed_mixes_the_default_values() -> None:
    assert spec("all_reduce").seed is None
    assert spec("all_reduce", seed="0").seed == 0
    assert spec("all_gather", seed="7", uneven=True).seed == 7


@pytest.mark.parametrize("flags", [{"fill": "1"}, {"values": ["1", "2"]}])
def test_a_seed_has_nothing_to_mix_in_the_user_s_own_values(flags: Any) -> None:
    assert "your own" in refused("all_reduce", seed="1", **flags).what


@pytest.mark.parametrize("text", ["", "x", "1.5", "-1", str(2**31 - 1)])
def test_a_seed_that_is_none_is_refused(text: str) -> None:
    assert "--seed" in refused("all_reduce", seed=text).what


@pytest.mark.parametrize("text", ["x", "", "1+2j", "true", "nan", "inf"])
def test_a_factor_that_is_none_is_refused(text: str) -> None:
    flags = {"reduce_op": "premul_sum", "factor": text}
    assert "--factor" in refused("all_reduce", **flags).what


def test_a_factor_goes_with_a_pre_multiplied_sum_alone() -> None:
    assert "premul_sum" in refused("all_reduce", factor="2").what
    assert "NCCL" in refused("all_reduce", reduce_op="premul_sum", factor="2").why


def test_inference_mode_can_be_asked_for_everywhere() -> None:
    for name in ops.REGISTRY:
        assert spec(name, inference=True).inference
