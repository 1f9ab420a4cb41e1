"""Categories of several signals as a HistFactory workspace, with one strength per signal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fivesigma.errors import InputError
from fivesigma.yields import check_counts

if TYPE_CHECKING:
    from fivesigma.categories.several_signals.record import ScoreCategories


def strength(signal: str) -> str:
    """Name of the strength of a signal."""
    return f"mu_{signal}"


def to_pyhf(
    categories: ScoreCategories, *, staterror: bool = True, channel: str = "categories", data: ArrayLike | None = None
) -> dict[str, Any]:
    """Describe categories as a workspace: one channel, one bin per category, one sample per process.

    There is one measurement per signal, ``discovery of <signal>``, with the strength of that signal as the parameter
    of interest; the other strengths float in it. `ScoreCategories.z` has them fixed to one.

    Parameters
    ----------
    categories : ScoreCategories
        Filled with the events to quote, as `ScoreCategories.evaluate` does.
    staterror : bool, default=True
        Whether to add the statistical uncertainty of the simulation.
    channel : str, default="categories"
        Name of the channel.
    data : array-like of shape (n_categories,), optional
        Observed events; by default the expected sum.

    Returns
    -------
    dict
        Valid against pyhf's schema ``workspace.json``, version 1.0.0.
    """
    if not (categories.b > 0).all():
        worst = int(categories.b.argmin())
        raise InputError(f"category {worst} has b = {categories.b[worst]:g}; a fit needs background in every category")
    expected = np.sum([rows.sum_of_weights for rows in categories.by_process.values()], axis=0)
    observed = expected if data is None else check_counts(data, len(categories))
    samples = []
    for name, rows in categories.by_process.items():
        modifiers: list[dict[str, Any]] = []
        if rows.signal:
            modifiers.append({"name": strength(name), "type": "normfactor", "data": None})
        if staterror:
            errors = np.sqrt(rows.sum_of_squares).tolist()
            modifiers.append({"name": f"staterror_{channel}", "type": "staterror", "data": errors})
        samples.append({"name": name, "data": rows.sum_of_weights.tolist(), "modifiers": modifiers})
    parameters = [{"name": strength(name), "inits": [1.0], "bounds": [[0.0, 10.0]]} for name in categories.signals]
    return {
        "channels": [{"name": channel, "samples": samples}],
        "observations": [{"name": channel, "data": observed.tolist()}],
        "measurements": [
            {"name": f"discovery of {name}", "config": {"poi": strength(name), "parameters": parameters}}
            for name in categories.signals
        ],
        "version": "1.0.0",
    }
