"""Cuts, categories and classifiers for discovery significance, with systematics, from ntuples to the fit."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# The public names of each module, which is imported on first use (PEP 562). A test holds what type checkers read below
# to this table.
_NAMES = {
    "analysis": "analyse",
    "cascade.rounds": "History Round",
    "categories": "Categories categorise",
    "categories.datacard": "to_combine",
    "categories.review": "Pruned prune write_hepdata",
    "categories.several_signals": "ScoreCategories categorise_scores",
    "categories.workspace": "discovery_significance to_pyhf write_workspace",
    "cut": "CutScan scan",
    "datasets.events": "Events",
    "datasets.load": "load_events",
    "errors": "InputError",
    "estimators.auto": "AutoClassifier",
    "estimators.decomposed": "DecomposedClassifier",
    "estimators.grown": "GrownCascadeClassifier",
    "estimators.pool": "CascadePool",
    "estimators.profiled": "ProfiledClassifier",
    "estimators.retrained": "CascadeClassifier",
    "estimators.scorer": "make_scorer",
    "exporting": "Exported export",
    "estimators.net_classifier": "NetClassifier",
    "likelihood.shifts": "Normalisation Varied YieldShifts profiled_significance yield_shifts",
    "plot": "plot",
    "rebinning": "Rebinned rebin",
    "reporting": "Report report",
    "scored.scored_events": "ScoredEvents",
    "scored.scored_files": "ScoredFiles",
    "significance": "AMS2 AMS3 FDivergence GaussianBackground OnOff RelativeBackground SOverRootSB Utility",
    "store": "load save",
    "yields": "Yields",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the names come from one table

# ruff: noqa: I001 - the second name tells type checkers that it is meant for others
if TYPE_CHECKING:
    from fivesigma import plot as plot
    from fivesigma.analysis import analyse as analyse
    from fivesigma.cascade.rounds import History as History, Round as Round
    from fivesigma.categories import Categories as Categories, categorise as categorise
    from fivesigma.categories.datacard import to_combine as to_combine
    from fivesigma.categories.review import Pruned as Pruned, prune as prune, write_hepdata as write_hepdata
    from fivesigma.categories.several_signals import (
        ScoreCategories as ScoreCategories,
        categorise_scores as categorise_scores,
    )
    from fivesigma.categories.workspace import (
        discovery_significance as discovery_significance,
        to_pyhf as to_pyhf,
        write_workspace as write_workspace,
    )
    from fivesigma.cut import CutScan as CutScan, scan as scan
    from fivesigma.datasets.events import Events as Events
    from fivesigma.datasets.load import load_events as load_events
    from fivesigma.errors import InputError as InputError
    from fivesigma.estimators.auto import AutoClassifier as AutoClassifier
    from fivesigma.estimators.decomposed import DecomposedClassifier as DecomposedClassifier
    from fivesigma.estimators.grown import GrownCascadeClassifier as GrownCascadeClassifier
    from fivesigma.estimators.pool import CascadePool as CascadePool
    from fivesigma.estimators.profiled import ProfiledClassifier as ProfiledClassifier
    from fivesigma.estimators.retrained import CascadeClassifier as CascadeClassifier
    from fivesigma.estimators.scorer import make_scorer as make_scorer
    from fivesigma.exporting import Exported as Exported, export as export
    from fivesigma.estimators.net_classifier import NetClassifier as NetClassifier
    from fivesigma.likelihood.shifts import (
        Normalisation as Normalisation,
        Varied as Varied,
        YieldShifts as YieldShifts,
        profiled_significance as profiled_significance,
        yield_shifts as yield_shifts,
    )
    from fivesigma.rebinning import Rebinned as Rebinned, rebin as rebin
    from fivesigma.reporting import Report as Report, report as report
    from fivesigma.scored.scored_events import ScoredEvents as ScoredEvents
    from fivesigma.scored.scored_files import ScoredFiles as ScoredFiles
    from fivesigma.significance import (
        AMS2 as AMS2,
        AMS3 as AMS3,
        FDivergence as FDivergence,
        GaussianBackground as GaussianBackground,
        OnOff as OnOff,
        RelativeBackground as RelativeBackground,
        SOverRootSB as SOverRootSB,
        Utility as Utility,
    )
    from fivesigma.store import load as load, save as save
    from fivesigma.yields import Yields as Yields


def __getattr__(name: str) -> Any:
    if name in _HOME:
        module = importlib.import_module(f"fivesigma.{_HOME[name]}")
        return module if _HOME[name] == name else getattr(module, name)
    msg = f"module 'fivesigma' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
