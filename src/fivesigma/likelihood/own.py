"""Utilities as likelihoods: the uncertainty of the background that they bring along."""

from __future__ import annotations

from typing import NamedTuple

from fivesigma.errors import InputError
from fivesigma.significance import AMS2, GaussianBackground, RelativeBackground, Utility


class OwnUncertainty(NamedTuple):
    """What a utility says of the background of every category: an offset, and one correlated uncertainty of it."""

    offset: float
    fraction: float
    constant: float

    @classmethod
    def of(cls, utility: Utility) -> OwnUncertainty:
        """Refuse utilities whose F is no likelihood ratio of counts."""
        if isinstance(utility, GaussianBackground):
            return cls(utility.b_reg, 0.0, utility.sigma)
        if isinstance(utility, RelativeBackground):
            return cls(utility.b_reg, utility.fraction, utility.fraction * utility.b_reg)
        if not isinstance(utility, AMS2):
            raise InputError(
                f"systematics need utility AMS2, GaussianBackground or RelativeBackground, got {utility!r}; the "
                "significance is a profiled likelihood ratio"
            )
        return cls(utility.b_reg, 0.0, 0.0)

    @property
    def uncertain(self) -> bool:
        """Whether there is an uncertainty."""
        return self.fraction > 0 or self.constant > 0
