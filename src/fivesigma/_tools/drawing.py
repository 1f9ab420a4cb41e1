"""What several figures share."""

from __future__ import annotations

from functools import partial
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincinv

from fivesigma._tools.extras import need
from fivesigma._types import Array
from fivesigma.errors import InputError, is_number

CUT_LINE = {"color": "black", "linestyle": "--", "linewidth": 1}
_ONE_SIDE = 0.15865525393145707  # probability beyond one standard deviation, on one side
_POINTS = {"fmt": "o", "color": "black", "markersize": 3, "linewidth": 1}


class Label(TypedDict, total=False):
    """What every figure can have above it: a name, the luminosity in 1/fb and the energy in TeV."""

    experiment: str
    luminosity: float
    energy: float


def axes_or_current(ax: Any) -> Any:
    """Return the axes, or matplotlib's current ones if there are none."""
    return need("matplotlib.pyplot").gca() if ax is None else ax


def draw_label(
    ax: Any,
    *,
    experiment: str | None = None,
    luminosity: float | None = None,
    energy: float | None = None,
    data: bool = False,
) -> None:
    """Write experiment, luminosity and energy above the axes, as mplhep does; nothing if none is given."""
    for name, value in (("luminosity", luminosity), ("energy", energy)):
        if value is not None and not (is_number(value) and 0 < value < np.inf):
            raise InputError(f"{name} must be a positive number, got {value!r}")
    if experiment is None and luminosity is None and energy is None:
        return
    name, _, text = (experiment or "").partition(" ")
    known: Any = getattr(need("mplhep"), name.lower(), None) if name else None
    draw = known.label if hasattr(known, "label") else partial(need("mplhep.label").exp_label, exp=name)
    size = need("matplotlib.font_manager").FontProperties(size=ax.xaxis.label.get_size()).get_size_in_points()
    options = {"text": text, "lumi": luminosity, "com": energy, "data": data or not name, "loc": 0, "ax": ax}
    for _ in range(3):  # as small as is needed to keep the two ends of the line apart
        texts = draw(**options, fontsize=size)
        ax.figure.draw_without_rendering()  # so that the layout is done, and sizes are what they will be
        left = texts[1] if text or not data else texts[0]
        whole = ax.get_window_extent()
        # Without luminosity and energy there is nothing at the right end.
        right = 0.0 if texts[2] is None else texts[2].get_window_extent().width
        room = 0.96 * whole.width / (left.get_window_extent().x1 - whole.x0 + right)
        if room >= 1:
            break
        size *= room
        for each in texts:
            if each is not None:
                each.remove()
    else:
        draw(**options, fontsize=size)


def legend_above(ax: Any, highest: float, *, title: str | None = None) -> None:
    """Draw the legend at the top, and raise the upper limit of the axes until all that is drawn lies below it."""
    tight = {"handlelength": 1.4, "columnspacing": 1.2, "borderaxespad": 0.2, "title": title}
    tight |= {"frameon": True, "framealpha": 1.0, "edgecolor": "none"}  # lines over the whole height stay behind it
    frame: Any = None
    for columns, size in ((2, "small"), (2, "x-small"), (1, "x-small")):  # the first that is not too wide
        legend = ax.legend(fontsize=size, title_fontsize=size, ncols=columns, loc="upper center", **tight)
        ax.figure.draw_without_rendering()  # so that the layout is done, and sizes are what they will be
        frame, whole = legend.get_window_extent(), ax.get_window_extent()
        if frame.width <= whole.width:
            break
    share = min((whole.y1 - frame.y0) / whole.height + 0.04, 0.75)  # of the height, for the legend and a little air
    bottom = ax.get_ylim()[0]
    if ax.get_yscale() == "log":
        ax.set_ylim(bottom, bottom * (highest / bottom) ** (1 / (1 - share)))
    else:
        ax.set_ylim(bottom, bottom + (highest - bottom) / (1 - share))


def panel_below(ax: Any) -> Any:
    """Make room for a second panel below the axes, with the same horizontal axis."""
    place = ax.get_subplotspec()
    if place is None:
        raise InputError("these axes are no subplot, so that no panel fits below them: give the axes of the ratio")
    above, below = place.subgridspec(2, 1, height_ratios=(3, 1), hspace=0.0)
    ax.set_subplotspec(above)
    return ax.figure.add_subplot(below, sharex=ax)


def draw_data(ax: Any, edges: Array, counts: Array, expected: Array, *, error: Array | None, ratio: Any = None) -> Any:
    """Draw observed counts as points, and below them their ratio to what is expected."""
    below = panel_below(ax) if ratio is None else ratio
    centre, low, high = (edges[:-1] + edges[1:]) / 2, *poisson_interval(counts)
    seen = counts > 0  # a logarithmic scale has no zero
    bars = np.stack([counts - low, high - counts])
    ax.errorbar(centre[seen], counts[seen], bars[:, seen], label="data", zorder=4, **_POINTS)
    filled = (expected > 0) & np.isfinite(counts)
    if error is not None:
        share = np.divide(error, expected, out=np.zeros_like(expected), where=expected > 0)
        below.stairs(1 + share, edges, baseline=1 - share, fill=True, color="0.8", linewidth=0)
    of = expected[filled]
    below.errorbar(centre[filled], counts[filled] / of, bars[:, filled] / of, **_POINTS)
    below.axhline(1.0, color="black", linewidth=1)
    below.set_ylim(0.01, 1.99)  # so that its ticks keep away from those above
    below.set_ylabel("data / exp.")
    below.set_xlabel(ax.get_xlabel())
    ax.set_xlabel("")
    ax.tick_params(labelbottom=False)
    return below


def poisson_interval(counts: ArrayLike) -> tuple[Array, Array]:
    """Central intervals of 68.3 % of Poisson means (Garwood); the lower end is zero for no event."""
    n = np.asarray(counts, dtype=np.float64)
    return np.where(n > 0, gammaincinv(np.maximum(n, 1), _ONE_SIDE), 0.0), gammaincinv(n + 1, 1 - _ONE_SIDE)


def draw_significance(ax: Any, x: Array, z: Array, error: Array, *, label: str, at: float, at_label: str) -> None:
    """Draw the curve of significance with its band of one standard error, and a line at the cut."""
    ax.fill_between(x, z - error, z + error, alpha=0.25, linewidth=0, label="±1 standard error (simulation)")
    ax.plot(x, z, label=label)
    ax.axvline(at, label=at_label, **CUT_LINE)
    ax.set_ylim(bottom=0.0)
    ax.legend()
