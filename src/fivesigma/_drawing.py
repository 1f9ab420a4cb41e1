"""What several figures share."""

from __future__ import annotations

from typing import Any

from fivesigma._extras import need
from fivesigma._types import Array

CUT_LINE = {"color": "black", "linestyle": "--", "linewidth": 1}


def axes_or_current(ax: Any) -> Any:
    """Return the axes, or matplotlib's current ones if there are none."""
    return need("matplotlib.pyplot").gca() if ax is None else ax


def draw_significance(ax: Any, x: Array, z: Array, error: Array, *, label: str, at: float, at_label: str) -> None:
    """Draw the curve of significance with its band of one standard error, and a line at the cut.

    Parameters
    ----------
    ax : matplotlib axes
    x, z, error : arrays of shape (n_cuts,)
        Where each cut is drawn, its significance and standard error.
    label, at_label : str
        Of the curve and of the line.
    at : float
        Where the cut is drawn.
    """
    ax.fill_between(x, z - error, z + error, alpha=0.25, linewidth=0, label="±1 standard error (simulation)")
    ax.plot(x, z, label=label)
    ax.axvline(at, label=at_label, **CUT_LINE)
    ax.set_ylim(bottom=0.0)
    ax.legend()
