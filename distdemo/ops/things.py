"""The Python objects of the object collectives: the user's own, from JSON, or default ones.

The default ones differ by rank and pickle to different lengths, so that padding and misrouting
show: rank 2 holds ``{"rank": 2, "items": [20, 21]}``.
"""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distdemo.ops.spec import OpSpec


def value(label: int, spec: OpSpec) -> Any:  # noqa: ANN401 - whatever JSON has
    """The object of this label: of a rank, or of a piece of the root's list."""
    if spec.things is not None:
        return json.loads(spec.things[label] or "null")
    number = spec.member(label)
    return {"rank": number, "items": [10 * number + place for place in range(number % 5)]}


def pickled_size(thing: Any) -> int:  # noqa: ANN401 - any object
    """Bytes of its pickle, in the protocol that torch.distributed uses: the default one."""
    return len(pickle.dumps(thing))


def text(thing: Any) -> str:  # noqa: ANN401 - whatever JSON has
    """The object as compact JSON: two are the same if and only if their texts are."""
    return json.dumps(thing, ensure_ascii=False)
