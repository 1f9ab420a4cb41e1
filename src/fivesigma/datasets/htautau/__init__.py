"""The embedded events: a toy simulation of Higgs bosons decaying to taus, in the schema of the 2014 challenge."""

from __future__ import annotations

from fivesigma.challenge import YIELDS
from fivesigma.datasets.htautau.generate import make_htautau

__all__ = ["YIELDS", "make_htautau"]
