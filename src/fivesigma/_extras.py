"""The one place where optional libraries are imported."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from fivesigma.errors import MissingExtraError

EXTRA_OF = {
    "awkward": "root",
    "cramjam": "root",
    "hist": "stats",
    "jinja2": "report",
    "lightgbm": "lightgbm",
    "matplotlib": "plot",
    "mplhep": "plot",
    "polars": "parquet",
    "pyhf": "stats",
    "safetensors": "torch",
    "skops": "store",
    "torch": "torch",
    "uproot": "root",
    "xgboost": "cpu",
}


def installed(module: str) -> bool:
    """Whether `module` could be imported, without importing it."""
    return importlib.util.find_spec(module) is not None


def need(module: str) -> Any:
    """Import an optional `module` or say how to install it."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as err:
        if err.name is None or err.name.partition(".")[0] != package:
            raise  # the package is there, something inside it is not
        msg = f"{package} is needed here. Install it with: pip install 'fivesigma[{EXTRA_OF[package]}]'"
        raise MissingExtraError(msg, name=package) from err
