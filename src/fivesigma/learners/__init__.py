"""How each library takes weights: a learner is bound to its events once and trained with many weights."""

from __future__ import annotations

from fivesigma.learners.libraries import (
    LIBRARIES,
    bind_grower,
    bind_learner,
    check_library,
    default_learner,
    default_regressor,
)
from fivesigma.learners.protocols import Binding, Grower, Library, Model, Trainer
from fivesigma.learners.sklearn import check_learner

__all__ = [
    "LIBRARIES",
    "Binding",
    "Grower",
    "Library",
    "Model",
    "Trainer",
    "bind_grower",
    "bind_learner",
    "check_learner",
    "check_library",
    "default_learner",
    "default_regressor",
]
