"""What an analysis expects of the fit of all its regions, in front of the verdict on the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fivesigma.reporting.shifts import Step

__all__ = ["Expectation", "waterfall_steps"]


@dataclass(frozen=True)
class Expectation:
    """The section of an analysis.

    Attributes
    ----------
    significance, in_sample : float
        Of categories whose edges were chosen without the events that fill them, and on the events that chose them.
    n_categories : int
    waterfall : list of Step
        From a known background to the first of these numbers.
    fitted : float
        Expected significance of the workspace of all regions.
    mu, error : float
        Signal strength that its fit finds.
    blind : bool
        Whether the data of the chosen region are expected ones.
    """

    significance: float
    in_sample: float
    n_categories: int
    waterfall: list[Step]
    fitted: float
    mu: float
    error: float
    blind: bool


def waterfall_steps(pairs: Sequence[tuple[str, float]]) -> list[Step]:
    """Steps with their changes, of names and significances one after the other."""
    before = [pairs[0][1], *(value for _, value in pairs)]
    return [Step(name, value, value - last) for (name, value), last in zip(pairs, before, strict=False)]
