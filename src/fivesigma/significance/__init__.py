"""Utilities: discovery significance as a function of the signal yield s and the background yield b.

A utility is Z = h(F(s, b)) with h increasing. Where F is convex, it lies above its tangents, so the slopes
(dF/ds, -dF/db) at the present yields are the class weights of a weighted classification problem, and whoever lowers
that weighted error raises Z. The paper's family is F = b f(s/b): there the slopes are (u, f*(u)) with u = f'(s/b) and
the tangent is minus the paper's R(g, u) = b f*(u) + s~ u - p u, where s~ = p - s is the signal that was missed.

``b_reg`` is added to b here and nowhere else.
"""

from __future__ import annotations

from fivesigma.significance.names import UTILITIES, describe_utilities, resolve_utility
from fivesigma.significance.paper import AMS2, AMS3, FDivergence, SOverRootSB
from fivesigma.significance.uncertain_background import GaussianBackground, OnOff, RelativeBackground
from fivesigma.significance.utility import Utility, VariationalUtility

__all__ = [
    "AMS2",
    "AMS3",
    "UTILITIES",
    "FDivergence",
    "GaussianBackground",
    "OnOff",
    "RelativeBackground",
    "SOverRootSB",
    "Utility",
    "VariationalUtility",
    "describe_utilities",
    "resolve_utility",
]
