"""How each library takes weights: a learner is bound to its events once and trained with many weights."""

from __future__ import annotations

from fivesigma.learners.base import Binding, Model, Trainer, check_learner, default_learner
from fivesigma.learners.bind import bind

__all__ = ["Binding", "Model", "Trainer", "bind", "check_learner", "default_learner"]
