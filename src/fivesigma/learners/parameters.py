"""The parameters that a boosting library knows, asked of the library itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma.errors import InputError, did_you_mean

# In XGBoost's configuration, and no parameters.
_XGBOOST_STATE = frozenset(("name", "num_feature", "num_target", "specified_updater", "updater_seq"))


def check_names(library: str, params: dict[str, Any]) -> None:
    """Refuse names that a library does not know: by itself it only warns of them, or is silent."""
    known = known_parameters(library)
    for name in params:
        if known and name not in known:
            hint = did_you_mean(str(name), sorted(known))
            raise InputError(f"params[{name!r}] is not a parameter that {library} uses{hint}")


@cache
def known_parameters(library: str) -> frozenset[str]:
    """Names and aliases of all parameters that a tree booster of the library takes; empty if it does not tell."""
    return frozenset(_of_xgboost() if library == "xgboost" else _of_lightgbm())


def _of_xgboost() -> Iterator[str]:
    """The configuration of a booster holds every parameter under each of its names."""
    xgboost = need("xgboost")
    table = xgboost.DMatrix(np.zeros((1, 1)), label=[0.0])
    booster = xgboost.Booster({"objective": "binary:logistic", "tree_method": "hist"}, cache=[table])
    yield "verbosity"  # of the whole library, so that no booster has it
    yield from _leaves(json.loads(booster.save_config()))


def _leaves(node: Any) -> Iterator[str]:
    for name, value in node.items():
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                yield from _leaves(inner)
        if not isinstance(value, dict | list) and name not in _XGBOOST_STATE:
            yield name


def _of_lightgbm() -> Iterator[str]:
    """LightGBM has a table of aliases, which is not public in Python."""
    aliases = getattr(need("lightgbm").basic, "_ConfigAliases", None)
    table = getattr(aliases, "_get_all_param_aliases", dict)
    for name, others in table().items():
        yield from (name, *others)
