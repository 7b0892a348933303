from __future__ import annotations

from datetime import timedelta

from forked import in_a_child

from distdemo import backends
from distdemo.check.survey import survey
from distdemo.launcher.local import run_world


def test_third_party_backends_are_tried():
    def work():
        import torch.distributed as dist

        def create(store, rank, size, timeout: timedelta):
            """Return gloo under a different name."""
            return dist.ProcessGroupGloo(store, rank, size, timeout)

        def fail(store, rank, size, timeout: timedelta):
            raise RuntimeError("no such hardware")

        dist.Backend.register_backend("borrowed", create, devices=["cpu"])
        dist.Backend.register_backend("broken", fail, devices=["cpu"])
        found = {entry.name: entry for entry in survey(run_world).backends}
        assert set(backends.REGISTRY) <= set(found)
        for name in ("gloo", "borrowed"):
            assert found[name].tried == "all_reduce on 2 ranks verified", found[name]
        assert found["broken"].works is False
        assert "no such hardware" in found["broken"].tried
        assert "fake" not in found

    in_a_child(work)
