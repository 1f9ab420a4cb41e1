"""Train any weighted classifier to maximise discovery significance."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fivesigma.cascade import History, Round
    from fivesigma.cut import CutScan, scan
    from fivesigma.estimators.grown import GrownCascadeClassifier
    from fivesigma.estimators.pool import CascadePool
    from fivesigma.estimators.retrained import CascadeClassifier
    from fivesigma.estimators.scorer import make_scorer
    from fivesigma.significance import (
        AMS2,
        AMS3,
        FDivergence,
        GaussianBackground,
        OnOff,
        RelativeBackground,
        SOverRootSB,
        Utility,
    )
    from fivesigma.store import load, save
    from fivesigma.yields import Yields

# Every public name and the module that defines it; modules are imported on first use (PEP 562).
_HOME = {
    "AMS2": "significance",
    "AMS3": "significance",
    "FDivergence": "significance",
    "GaussianBackground": "significance",
    "OnOff": "significance",
    "RelativeBackground": "significance",
    "SOverRootSB": "significance",
    "Utility": "significance",
    "Yields": "yields",
    "CutScan": "cut",
    "CascadeClassifier": "estimators.retrained",
    "CascadePool": "estimators.pool",
    "GrownCascadeClassifier": "estimators.grown",
    "make_scorer": "estimators.scorer",
    "History": "cascade",
    "Round": "cascade",
    "scan": "cut",
    "load": "store",
    "save": "store",
}

__all__ = [
    "AMS2",
    "AMS3",
    "CascadeClassifier",
    "CascadePool",
    "CutScan",
    "FDivergence",
    "GaussianBackground",
    "GrownCascadeClassifier",
    "History",
    "OnOff",
    "RelativeBackground",
    "Round",
    "SOverRootSB",
    "Utility",
    "Yields",
    "load",
    "make_scorer",
    "save",
    "scan",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"fivesigma.{_HOME[name]}"), name)
    msg = f"module 'fivesigma' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
