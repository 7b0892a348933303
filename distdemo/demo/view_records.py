"""Specs, holdings and verifications as parts of a JSON document."""

from __future__ import annotations

from typing import Any

from distdemo.ops.contract import Traffic
from distdemo.ops.spec import OpSpec

Json = Any


def spec_entry(spec: OpSpec) -> dict[str, Json]:
    """What was asked for."""
    return {
        "op": spec.op,
        "world_size": spec.group_size,
        "dtype": spec.dtype,
        "shape": list(spec.shape),
        "reduce_op": spec.reduce_op,
        "root": spec.root,
        "src": spec.src,
        "dst": spec.dst,
        "pattern": spec.pattern,
        "async": spec.async_op,
        "variant": spec.variant,
        "objects": spec.objects,
        "sizes": spec.sizes,
        "splits": spec.splits,
        "group": spec.members,
        "inference_mode": spec.inference,
        "monitored": spec.monitored,
        "straggler": spec.straggler,
        "seed": spec.seed,
    }


def traffic_entry(traffic: Traffic) -> dict[str, Json]:
    """What the op moves."""
    return {
        "payload_bytes": traffic.payload_bytes,
        "payload_is": traffic.payload_is,
        "busbw_factor": traffic.busbw_factor,
        "formula": traffic.busbw_formula,
        "bus_bytes": traffic.bus_bytes,
    }
