from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from distdemo import backends

PROGRAM = Path(__file__).parent / "programs" / "survey_third_party.py"


def test_backends_of_third_parties_are_found_and_tried() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], capture_output=True, text=True, check=True, timeout=60
    )
    found = json.loads(done.stdout)
    assert set(backends.REGISTRY) <= set(found)
    assert found["gloo"] == [True, "all_reduce on 2 ranks verified"]
    assert found["borrowed"] == [True, "all_reduce on 2 ranks verified"]
    works, tried = found["broken"]
    assert works is False
    assert "no such hardware" in tried
    assert "fake" not in found
