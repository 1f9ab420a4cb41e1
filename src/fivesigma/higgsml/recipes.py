"""Which models a recipe trains, how their scores are held out, and how they are blended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fivesigma._tools.extras import need
from fivesigma.errors import InputError, did_you_mean
from fivesigma.estimators.decomposed import DecomposedClassifier
from fivesigma.estimators.grown import GrownCascadeClassifier
from fivesigma.estimators.retrained import CascadeClassifier
from fivesigma.higgsml.orientation import MOMENTA
from fivesigma.learners import default_regressor

__all__ = ["RECIPES", "Recipe", "find_recipe"]

Members = list[tuple[str, Any]]

TREES = {"learning_rate": 0.05, "max_depth": 6, "subsample": 0.8, "colsample_bytree": 0.8}
NET: dict[str, Any] = {"epochs": 15, "dropout": 0.1}
_BESIDE = "with plain XGBoost, a random forest and a neural net"
QUICK = 0.05  # share of trees and epochs of a quick run


@dataclass(frozen=True)
class Recipe:
    """An ensemble that is trained on the challenge's 30 columns; `cv` and `weights` are those of `CascadePool`.

    `members` makes (name, estimator) pairs from the names of the columns and the share of the full effort.
    """

    name: str
    summary: str
    cv: float | int
    weights: str
    members: Callable[[Sequence[str], float], Members]


def find_recipe(name: str) -> Recipe:
    """Return the recipe of this name: plain, paper-ten, paper-full or best.

    Examples
    --------
    >>> find_recipe("paper-ten").summary
    'five plain and five grown XGBoost models of 500 trees'
    """
    for recipe in RECIPES:
        if recipe.name == name:
            return recipe
    names = [recipe.name for recipe in RECIPES]
    raise InputError(f"there is no recipe {name!r}; choose among {', '.join(names)}{did_you_mean(name, names)}")


def _boosted(n: int, effort: float, *, cascade: bool) -> Members:
    """Models of 500 trees, u updated after each: the paper's settings."""
    name = "grown" if cascade else "plain"
    shared: dict[str, Any] = {"n_trees": _scaled(500, effort), "params": TREES, "update_every": 1}
    return [(f"{name}-{k}", GrownCascadeClassifier(cascade=cascade, **shared)) for k in range(1, n + 1)]


def _plain(_columns: Sequence[str], effort: float) -> Members:
    return _boosted(1, effort, cascade=False)


def _paper_ten(_columns: Sequence[str], effort: float) -> Members:
    return [*_boosted(5, effort, cascade=False), *_boosted(5, effort, cascade=True)]


def _paper_full(columns: Sequence[str], effort: float) -> Members:
    """XGBoost, a random forest, a neural net, and both cascades; best rounds of several restarts of the retrained."""
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(_scaled(200, effort), min_samples_leaf=20, max_features=0.3)
    learner = need("xgboost").XGBClassifier(n_estimators=_scaled(200, effort), **(TREES | {"learning_rate": 0.1}))
    retrained = CascadeClassifier(learner, max_rounds=12, extra_rounds=3, n_restarts=3, keep=5)
    plain = [*_boosted(5, effort, cascade=False), ("forest", forest), ("net", _net(columns, effort))]
    return [*plain, ("retrained", retrained), *_boosted(5, effort, cascade=True)]


def _best(columns: Sequence[str], effort: float) -> Members:
    """A net, which carries it, and decomposed trees, whose unweighted classifier can use a larger capacity."""
    params = TREES | {"learning_rate": 0.1, "colsample_bytree": 0.5}
    regressor = default_regressor()
    regressor.set_params(n_estimators=_scaled(regressor.n_estimators, effort))
    classifier = need("xgboost").XGBClassifier(n_estimators=_scaled(300, effort), **params)
    net = _net(columns, effort).set_params(weight_groups=4)
    return [("net", net), ("decomposed", DecomposedClassifier(classifier, regressor))]


def _net(columns: Sequence[str], effort: float) -> Any:
    """A net that turns events while it learns; columns by number, because a pool trains on arrays."""
    from fivesigma.estimators.net_classifier import NetClassifier

    at = {name: k for k, name in enumerate(columns)}
    momenta = [tuple(None if c is None else at[c] for c in triple) for triple in MOMENTA]
    return NetClassifier(**(NET | {"epochs": _scaled(NET["epochs"], effort)}), momenta=momenta)


def _scaled(n: int, effort: float) -> int:
    return max(1, round(n * effort))


RECIPES = (
    Recipe("plain", "one plain XGBoost model of 500 trees", 0.25, "even", _plain),
    Recipe("paper-ten", "five plain and five grown XGBoost models of 500 trees", 0.25, "even", _paper_ten),
    Recipe("paper-full", f"retrained and grown cascades {_BESIDE}", 0.25, "even", _paper_full),
    Recipe("best", "a net and decomposed trees, bagged over five folds, weights fitted", 5, "fit", _best),
)
