"""Models by name: the words that the command line and the analysis file share."""

from __future__ import annotations

import os
from typing import Any

from fivesigma.errors import InputError, did_you_mean
from fivesigma.estimators.auto import AutoClassifier
from fivesigma.estimators.decomposed import DecomposedClassifier
from fivesigma.estimators.grown import GrownCascadeClassifier
from fivesigma.estimators.pool import CascadePool
from fivesigma.estimators.profiled import ProfiledClassifier
from fivesigma.estimators.retrained import CascadeClassifier
from fivesigma.learners.libraries import HISTOGRAM, default_learner, default_regressor, installed_library
from fivesigma.significance import AMS2, resolve_utility

# What a model is called, and the estimator that it is; all but auto and profiled are members of a pool where there are
# folds by a column. The plain model is the grown one without the cascade.
MODELS: dict[str, type[Any]] = {
    "auto": AutoClassifier,
    "plain": GrownCascadeClassifier,
    "grown": GrownCascadeClassifier,
    "retrained": CascadeClassifier,
    "decomposed": DecomposedClassifier,
    "profiled": ProfiledClassifier,
}
_OF_A_POOL = ("utility", "b_reg", "negative_weights", "random_state", "cut", "n_jobs", "checkpoint", "verbose")


def make_model(
    model: str,
    *,
    library: str = "auto",
    n_trees: int | None = None,
    by: str | None = None,
    cv: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """Make the estimator that a name asks for; a model that has no folds of its own becomes, with `by`, a pool of one.

    What a profiled model maximises is no choice: it takes the utility AMS2 without b_reg.

    Examples
    --------
    >>> from fivesigma.estimators.make import make_model
    >>> make_model("plain", n_trees=100)
    GrownCascadeClassifier(cascade=False, n_trees=100)
    """
    if model not in MODELS:
        hint = did_you_mean(str(model), MODELS) or f"; known are {', '.join(MODELS)}"
        raise InputError(f"no model is called {model!r}{hint}")
    shared: dict[str, Any] = {} if cv is None else {"cv": cv}
    if checkpoint is not None:
        shared["checkpoint"] = os.fspath(checkpoint)
    if model == "auto":
        return AutoClassifier(library=library, by=by, n_trees=n_trees, **shared, **options)
    if model == "profiled":
        asked = options.pop("utility", "ams2"), options.pop("b_reg", None)
        if resolve_utility(*asked) != AMS2():
            raise InputError(
                f"a profiled model maximises the significance of a likelihood with systematics, not {asked[0]!r} with "
                f"b_reg={asked[1]}; leave both out"
            )
        shared["by"] = by
    if by is None or model == "profiled":
        return _single(model, library, n_trees, **shared, **options)
    shared |= {name: options.pop(name) for name in _OF_A_POOL if name in options}
    # A single member needs no common scale: its probability is the score.
    return CascadePool([(model, _single(model, library, n_trees, **options))], by=by, blend="probability", **shared)


def _single(model: str, library: str, n_trees: int | None, **options: Any) -> Any:
    trees: dict[str, Any] = {} if n_trees is None else {"n_trees": n_trees}
    name = installed_library() if library == "auto" else library
    if model in ("plain", "grown"):
        if name == HISTOGRAM:
            raise InputError(
                f"model {model!r} grows trees, which scikit-learn's histogram boosting cannot do one by one; use "
                "'retrained' or install a boosting library"
            )
        return GrownCascadeClassifier(name, cascade=model == "grown", **trees, **options)
    learner = None
    if library != "auto" or n_trees is not None:
        learner = default_learner(name, **trees)
        if model == "decomposed":
            options = {"weight_estimator": default_regressor(library=name), **options}
    return MODELS[model](learner, **options)
