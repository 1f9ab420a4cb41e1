"""Train any weighted classifier to maximise discovery significance."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from fivesigma import plot
    from fivesigma.analysis import analyse
    from fivesigma.cascade.rounds import History, Round
    from fivesigma.categories import Categories, categorise
    from fivesigma.categories.several_signals import ScoreCategories, categorise_scores
    from fivesigma.categories.workspace import discovery_significance, to_pyhf, write_workspace
    from fivesigma.cut import CutScan, scan
    from fivesigma.estimators.auto import AutoClassifier
    from fivesigma.estimators.decomposed import DecomposedClassifier
    from fivesigma.estimators.grown import GrownCascadeClassifier
    from fivesigma.estimators.pool import CascadePool
    from fivesigma.estimators.retrained import CascadeClassifier
    from fivesigma.estimators.scorer import make_scorer
    from fivesigma.exporting import Exported, export
    from fivesigma.learners.net.classifier import NetClassifier
    from fivesigma.likelihood.shifts import Normalisation, Varied, YieldShifts, profiled_significance, yield_shifts
    from fivesigma.reporting import Report, report
    from fivesigma.scored.scored_events import ScoredEvents
    from fivesigma.scored.scored_files import ScoredFiles
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
    "analyse": "analysis",
    "History": "cascade.rounds",
    "Round": "cascade.rounds",
    "categorise": "categories",
    "CutScan": "cut",
    "scan": "cut",
    "AutoClassifier": "estimators.auto",
    "DecomposedClassifier": "estimators.decomposed",
    "GrownCascadeClassifier": "estimators.grown",
    "CascadePool": "estimators.pool",
    "CascadeClassifier": "estimators.retrained",
    "make_scorer": "estimators.scorer",
    "Exported": "exporting",
    "export": "exporting",
    "NetClassifier": "learners.net.classifier",
    "plot": "plot",
    "ScoreCategories": "categories.several_signals",
    "categorise_scores": "categories.several_signals",
    "Report": "reporting",
    "report": "reporting",
    "ScoredEvents": "scored.scored_events",
    "ScoredFiles": "scored.scored_files",
    "Categories": "categories",
    "AMS2": "significance",
    "AMS3": "significance",
    "FDivergence": "significance",
    "GaussianBackground": "significance",
    "OnOff": "significance",
    "RelativeBackground": "significance",
    "SOverRootSB": "significance",
    "Utility": "significance",
    "load": "store",
    "save": "store",
    "Normalisation": "likelihood.shifts",
    "Varied": "likelihood.shifts",
    "YieldShifts": "likelihood.shifts",
    "profiled_significance": "likelihood.shifts",
    "yield_shifts": "likelihood.shifts",
    "discovery_significance": "categories.workspace",
    "to_pyhf": "categories.workspace",
    "write_workspace": "categories.workspace",
    "Yields": "yields",
}

__all__ = [
    "AMS2",
    "AMS3",
    "AutoClassifier",
    "CascadeClassifier",
    "CascadePool",
    "Categories",
    "CutScan",
    "DecomposedClassifier",
    "Exported",
    "FDivergence",
    "GaussianBackground",
    "GrownCascadeClassifier",
    "History",
    "NetClassifier",
    "Normalisation",
    "OnOff",
    "RelativeBackground",
    "Report",
    "Round",
    "SOverRootSB",
    "ScoreCategories",
    "ScoredEvents",
    "ScoredFiles",
    "Utility",
    "Varied",
    "YieldShifts",
    "Yields",
    "analyse",
    "categorise",
    "categorise_scores",
    "discovery_significance",
    "export",
    "load",
    "make_scorer",
    "plot",
    "profiled_significance",
    "report",
    "save",
    "scan",
    "to_pyhf",
    "write_workspace",
    "yield_shifts",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        module = importlib.import_module(f"fivesigma.{_HOME[name]}")
        return module if _HOME[name] == name else getattr(module, name)
    msg = f"module 'fivesigma' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
