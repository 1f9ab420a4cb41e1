"""The regions in two ratios of probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from scipy.ndimage import distance_transform_edt

from fivesigma._tools.drawing import Label, draw_label
from fivesigma._tools.extras import need
from fivesigma._types import Array
from fivesigma.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from fivesigma.categories.several_signals.region_result import ScoreCategories

_POINTS = 400
_RANGE = 8.0  # of the logarithms, to both sides, if no events say otherwise
_DISCARDED = "#f2f2f2"
_BRIGHTNESS = np.array([0.299, 0.587, 0.114])  # of red, green and blue, as the eye sees them


def draw(
    categories: ScoreCategories,
    ax: Any = None,
    axes: tuple[str, str] | None = None,
    scores: Array | None = None,
    **label: Unpack[Label],
) -> Any:
    """Draw the category of every point of log(p_1 / p_b) and log(p_2 / p_b), p_b being all background.

    Every region has the number of its category where most of it lies. Further signals have the probability of the
    background, divided by 1,000; several background columns have equal parts of it.
    """
    pyplot = need("matplotlib.pyplot")
    colours = need("matplotlib.colors")
    if len(categories.signals) < 2:
        raise InputError("there is one signal only; a figure of regions needs the ratios of two")
    x, y = axes if axes is not None else categories.signals[:2]
    for name in (x, y):
        if name not in categories.signals:
            raise InputError(f"no signal is called {name!r}{did_you_mean(name, categories.signals)}")
    columns = categories.processes
    backgrounds = [i for i, name in enumerate(columns) if name not in categories.signals]
    at_x, at_y = columns.index(x), columns.index(y)
    spans = [(-_RANGE, _RANGE)] * 2
    if scores is not None:
        with np.errstate(divide="ignore"):
            logs = np.log(scores[:, [at_x, at_y]]) - np.log(scores[:, backgrounds].sum(axis=1, keepdims=True))
        spans = [tuple(np.quantile(column[np.isfinite(column)], (0.001, 0.999))) for column in logs.T]
    grid_x, grid_y = np.meshgrid(*(np.linspace(*span, _POINTS) for span in spans))
    p = np.full((grid_x.size, len(columns)), 1e-3)
    p[:, backgrounds] = 1.0 / len(backgrounds)
    p[:, at_x], p[:, at_y] = np.exp(grid_x.ravel()), np.exp(grid_y.ravel())
    category = categories.assign(p / p.sum(axis=1, keepdims=True)).reshape(grid_x.shape)
    palette = pyplot.get_cmap("viridis")(np.linspace(0.15, 1.0, len(categories)))
    cmap = colours.ListedColormap([colours.to_rgba(_DISCARDED), *palette])
    ax = pyplot.gca() if ax is None else ax
    ax.pcolormesh(grid_x, grid_y, category, cmap=cmap, vmin=-1.5, vmax=len(categories) - 0.5, rasterized=True)
    for k in range(-1, len(categories)):
        inside = category == k
        if inside.sum() > 0.002 * inside.size:
            where = _middle(inside)
            number = "discarded" if k < 0 else str(k)
            colour = "black" if k < 0 or palette[k, :3] @ _BRIGHTNESS > 0.45 else "white"
            ax.text(grid_x[where], grid_y[where], number, color=colour, ha="center", va="center", fontsize="small")
    ax.set_xlabel(f"log(p({x}) / p(background))")
    ax.set_ylabel(f"log(p({y}) / p(background))")
    title = f"{len(categories)} categories, {categories.settings.goal.name} goal {categories.value:.3f}"
    ax.set_title(title, pad=2 * ax.title.get_size() if label else None)
    draw_label(ax, **label)
    return ax


def _middle(inside: Any) -> tuple[int, int]:
    """A point well inside a region: the one that is farthest from its border and from that of the figure."""
    depth = distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
    row, column = divmod(int(depth.argmax()), inside.shape[1])
    return row, column
