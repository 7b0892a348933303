"""``distdemo backends`` as a user runs it. The probe itself is tried on a few cases elsewhere."""

from __future__ import annotations

import json

import pytest

from distdemo import backends


@pytest.fixture
def no_rank_starts(monkeypatch):
    def start(*_):
        pytest.fail("a rank was started")

    monkeypatch.setattr("distdemo.launcher.crew.Crew.start", start)
    monkeypatch.setattr(backends, "gpus_in_sight", lambda: False)


def test_the_document_says_who_is_here_and_how_to_get_the_others(command):
    code, out, err = command("backends", "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["ok"] is True
    assert found["errors"] == []
    by_name = {entry["name"]: entry for entry in found["backends"]}
    assert list(by_name)[: len(backends.REGISTRY)] == list(backends.REGISTRY)
    gloo = by_name["gloo"]
    assert gloo["here"] is gloo["works"] is True
    assert gloo["tried"] == "all_reduce on 2 ranks verified"
    for name, backend in backends.REGISTRY.items():
        entry = by_name[name]
        assert entry["devices"] == list(backend.devices)
        assert entry["here"] == (backend.missing() is None)
        if not entry["here"]:
            assert entry["works"] is None
            assert entry["why_not"].endswith(".")
            assert entry["how_to_get_it"].endswith(".")


def test_the_table_fits_and_names_them_all(command):
    code, out, err = command("backends")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    for name in backends.REGISTRY:
        assert f"│ {name} " in out
    assert "✓ works" in out
    assert "--probe" in out


def test_quiet_is_the_verdict_alone(command):
    code, out, err = command("backends", "--quiet")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 1
    assert out.startswith("✓ gloo")


@pytest.mark.usefixtures("no_rank_starts")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("backends --write map.json", ["--write means nothing without --probe", "--probe gloo"]),
        ("backends --device cpu", ["--device means nothing without --probe", "--probe gloo"]),
        ("backends --probe nccl", ["--probe nccl needs a GPU", "Try --probe gloo"]),
        ("backends --probe ucc", ["--probe ucc can't be used", "built without"]),
        ("backends --probe glo", ["'glo'", "--probe gloo"]),
        ("backends --probe gloo --write no/such/map.json", ["--write", "can't be written"]),
        ("backends --probe --timeout 0", ["--timeout 0"]),
        ("backends --probe --device tpu", ["'tpu'", "cpu"]),
        ("backends --format jsn", ["'jsn'", "--format json"]),
    ],
)
def test_it_is_refused_with_what_why_and_what_to_try(line, words, command):
    code, out, err = command(*line.split())
    assert (code, out) == (2, "")
    assert len(err.splitlines()) >= 3
    assert "--backend" not in err, "it has no such option"
    for word in words:
        assert word in " ".join(err.split())


@pytest.mark.usefixtures("no_rank_starts")
def test_a_refusal_is_a_document_too(command):
    code, out, err = command("backends", "--probe", "nccl", "--format", "json")
    assert (code, err) == (2, "")
    found = json.loads(out)
    assert (found["ok"], found["command"]) == (False, "backends")
    assert all(found["errors"][0][part] for part in ("what", "why", "hint"))
