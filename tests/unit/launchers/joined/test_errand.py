from __future__ import annotations

from distdemo.launcher.joined.errand import Errand


def test_the_same_meaning_has_the_same_digest_however_it_was_worded() -> None:
    one = Errand("all_reduce float32", "all-reduce --dtype float32")
    other = Errand("all_reduce float32", "all_reduce")
    assert one.digest == other.digest
    assert len(one.digest) == 16
    int(one.digest, 16)


def test_another_meaning_has_another_digest() -> None:
    assert Errand("all_reduce 4", "").digest != Errand("all_reduce 5", "").digest
    assert Errand("über", "").digest != Errand("uber", "").digest
