"""The figure of a cascade's progress: the path of u, and the minorants that push the significance up."""

from __future__ import annotations

from typing import Any

import numpy as np

from fivesigma._extras import need
from fivesigma.cascade import History
from fivesigma.cut import Curve
from fivesigma.errors import InputError
from fivesigma.significance import Utility, VariationalUtility

MOST_POINTS = 500  # of a curve; more are not seen


def draw_progress(history: History, curve: Curve, utility: Utility, *, cut: float, title: str = "") -> Any:
    """Draw a cascade's progress.

    Left, by round: u and the held-out significance at the update cut. Right, against the cut on the final score:
    F = Z^2/2 and, for some rounds, the minorant -R(., u) = u s - f*(u) (b + b_reg) at the u of the round, which lies
    below F everywhere and touches it at the cut whose yields give that u.

    Parameters
    ----------
    history : History
        Rounds of the cascade.
    curve : Curve
        Yields against the cut on the final score; ``fivesigma.scan(...).curve``.
    utility : Utility
        Of the paper's family: it must have a u.
    cut : float
        The cut of the model.
    title : str, optional
        Of the figure.

    Returns
    -------
    matplotlib Figure
    """
    if not isinstance(utility, VariationalUtility):
        raise InputError(f"{utility!r} has no u, so there is no path of u to draw")
    figure = need("matplotlib.figure").Figure(figsize=(12, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    if title:
        figure.suptitle(title)
    _draw_rounds(left, history)
    _draw_minorants(right, history, curve, utility, cut)
    return figure


def _draw_rounds(ax: Any, history: History) -> None:
    rounds = np.array([r.index for r in history])
    u = np.array([np.nan if r.u is None else r.u for r in history])
    z = np.array([r.significance if r.counts else np.nan for r in history])
    ax.plot(rounds, z, color="tab:blue", linewidth=1.2)
    ax.set_xlabel("round")
    ax.set_ylabel("held-out significance at the update cut", color="tab:blue")
    ax.tick_params(axis="y", labelcolor="tab:blue")
    ax.set_xlim(rounds[0], max(rounds[-1], rounds[0] + 1))
    twin = ax.twinx()
    twin.plot(rounds, u, color="tab:red", linewidth=1.2)
    twin.set_ylabel("u", color="tab:red")
    twin.tick_params(axis="y", labelcolor="tab:red")
    ax.set_title("What each round reached", fontsize="medium")


def _draw_minorants(ax: Any, history: History, curve: Curve, utility: VariationalUtility, cut: float) -> None:
    points = np.flatnonzero(np.isfinite(curve.significance))
    points = points[np.linspace(0, points.size - 1, min(points.size, MOST_POINTS)).astype(int)]
    x, s, b = curve.cut[points], curve.s[points], curve.b[points]
    F = np.asarray(utility.objective(s, b))
    u_of_cut = np.asarray(utility.u(s, b))
    colours = need("matplotlib").colormaps["viridis"]
    shown = _some_rounds(history)
    for k, (index, u) in enumerate(shown):
        colour = colours(0.9 * k / max(len(shown) - 1, 1))
        touch = int(np.argmin(np.abs(u_of_cut - u)))
        minorant = -np.asarray(utility.surrogate(s, b, u, 0.0))
        ax.plot(x, minorant, color=colour, linewidth=1, label=f"round {index}: u = {u:.4f}")
        ax.plot(x[touch], F[touch], "o", color=colour, markeredgecolor="black", markersize=6, zorder=3)
    ax.plot(x, F, color="black", linewidth=2, label=r"$Z^2/2$")
    ax.axvline(cut, color="grey", linestyle="--", linewidth=1, label="the model's cut")
    top = float(F.max())
    ax.set_ylim(0, 1.12 * top)
    visible = x[0.15 * top < F]
    ax.set_xlim(visible.min(), visible.max())
    ax.set_xlabel("cut on the score")
    ax.set_ylabel(r"$Z^2/2$ and $-R(\cdot, u)$")
    ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    ax.set_title("The objective and the minorants that touch it", fontsize="medium")


def _some_rounds(history: History, most: int = 5) -> list[tuple[int, float]]:
    """The first round, the last, and a few whose u lie evenly between theirs."""
    known = [(r.index, r.u) for r in history if r.u is not None]
    if len(known) <= most:
        return known
    path = np.array([u for _, u in known])
    nearest = {int(np.argmin(np.abs(path - u))) for u in np.linspace(path[0], path[-1], most)[1:-1]}
    return [known[i] for i in sorted({0, *nearest, len(known) - 1})]
