"""What a search is asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fivesigma._types import Array
from fivesigma.categories.ratios.sample import Roles
from fivesigma.categories.several_signals.ascent import Floors
from fivesigma.categories.several_signals.goal import Goal


@dataclass(frozen=True)
class Settings:
    """Everything but the events; `prior` are class shares that were checked."""

    roles: Roles
    goal: Goal
    floors: Floors
    n_categories: int
    discard: bool
    prior: Array | None
    calibrate: bool

    @property
    def argmax_prior(self) -> Array:
        """Shares by which the simple way divides; as they are if no prior was given."""
        n = len(self.roles.columns)
        return np.ones(n) if self.prior is None else self.prior
