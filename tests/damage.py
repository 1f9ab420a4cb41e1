"""Damage of JSON values at random places, for tests of what is read from files."""

import json
import random
from typing import Any

Json = Any

NUMBERS = (-(1 << 31), -2, -1, 0, 1, 2, 3, 7, 127, 624, 1000, 65535, 1_000_000, (1 << 31) - 1)
FLOATS = (float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 1e38, 1e-40)
STRANGE: tuple[Json, ...] = (
    *(None, True, False, 0, -1, 1 << 70, 0.5, 1e308, "", "nan", "part-000.ubj", "../x", "\ud800", [], [[]], {}),
    *({"$": "tuple"}, {"$": "number", "value": "inf"}, {"$": []}, {"": {}}, [None] * 50),
    {"$": "array", "dtype": "<f8", "shape": [0], "data": []},
)


def places(value: Json) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found.append((value, key))
        found.extend(places(item))
    return found


def damage_value(rng: random.Random, root: Json) -> None:
    """Put something strange at a random place, or take the place away, or move its content elsewhere."""
    container, key = rng.choice(places(root))
    what = rng.randrange(6)
    old = container[key]
    if what == 0:
        del container[key]
    elif what == 1 and isinstance(container, dict):
        container[rng.choice(("$", "extra_", "__class__", "file", "__id__", "n_jobs"))] = container.pop(key)
    elif what == 2:
        other, other_key = rng.choice(places(root))
        container[key] = json.loads(json.dumps(other[other_key]))
    elif what == 3 and isinstance(old, int | float):
        container[key] = rng.choice((*NUMBERS, *FLOATS[3:], old + 1, -old))
    elif what == 4 and isinstance(old, list) and old:
        container[key] = old * rng.choice((0, 2, 3))
    else:
        container[key] = json.loads(json.dumps(rng.choice(STRANGE)))
