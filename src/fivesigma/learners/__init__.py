"""How each library takes weights: a learner is bound to its events once and trained with many weights."""

from __future__ import annotations

from fivesigma.learners.checks import check_learner, default_learner
from fivesigma.learners.choose import bind, check_library, grower
from fivesigma.learners.protocols import Binding, Grower, Model, StagedModel, Trainer

__all__ = [
    "Binding",
    "Grower",
    "Model",
    "StagedModel",
    "Trainer",
    "bind",
    "check_learner",
    "check_library",
    "default_learner",
    "grower",
]
