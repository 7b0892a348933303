from __future__ import annotations

import json
from pathlib import Path

from helpers import warmed

from distdemo import backends

PROGRAM = Path(__file__).parent / "survey_third_party.py"


def test_backends_of_third_parties_are_found_and_tried(tmp_path: Path) -> None:
    with warmed([str(PROGRAM)], tmp_path) as run:
        code, out, err = run.finish()
    assert code == 0, err
    found = json.loads(out)
    assert set(backends.REGISTRY) <= set(found)
    assert found["gloo"] == [True, "all_reduce on 2 ranks verified"]
    assert found["borrowed"] == [True, "all_reduce on 2 ranks verified"]
    works, tried = found["broken"]
    assert works is False
    assert "no such hardware" in tried
    assert "fake" not in found
