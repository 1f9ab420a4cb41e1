"""Categories of a report: what each keeps, and what they are worth together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from fivesigma.categories import Categories
from fivesigma.categories.several_signals import ScoreCategories
from fivesigma.errors import InputError


@dataclass(frozen=True)
class CategoryRow:
    """One category: what it is called, its yields by process, and the effective background in it."""

    name: str
    yields: list[float]
    effective_b: float
    significance: float | None


@dataclass(frozen=True)
class CategoryTable:
    """All categories.

    Attributes
    ----------
    significance : dict of str to float
        Of all categories together; of each signal if there are several.
    cross_fitted : float or None
        The same with edges that were chosen without the events that fill them.
    held_out : bool
        Whether the edges were chosen on other events than these.
    bound : float or None
        What no such categories exceed on the events that chose them.
    processes : list of str
        Heads of the yields, signals first.
    rows : list of CategoryRow
    notes : tuple of str
    """

    significance: dict[str, float]
    cross_fitted: float | None
    held_out: bool
    bound: float | None
    processes: list[str]
    rows: list[CategoryRow]
    notes: tuple[str, ...]


def category_table(categories: Any, cross_fitted: float | None = None) -> CategoryTable | None:
    """Table of categories of either kind; None if there are none.

    Parameters
    ----------
    categories : Categories or ScoreCategories, optional
    cross_fitted : float, optional
    """
    if categories is None:
        if cross_fitted is not None:
            raise InputError("cross_fitted is the significance of categories: give categories too")
        return None
    if isinstance(categories, Categories):
        edges = categories.edges
        names = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(edges)]
        each: list[float | None] = list(map(float, categories.by_category))
        together, bound = {"significance": categories.significance}, categories.bound
    elif isinstance(categories, ScoreCategories):
        names, each = [str(k) for k in range(len(categories))], [None] * len(categories)
        together, bound = dict(categories.z), categories.bound.value
    else:
        raise InputError(f"categories must be of categorise or categorise_scores, got {type(categories).__name__}")
    by_process = categories.by_process
    ordered = sorted(by_process, key=lambda name: not by_process[name].signal)
    columns = [by_process[name].sum_of_weights for name in ordered]
    effective = np.asarray(categories.effective_b)
    rows = [
        CategoryRow(name, [float(column[k]) for column in columns], float(effective[k]), each[k])
        for k, name in enumerate(names)
    ]
    return CategoryTable(together, cross_fitted, categories.held_out, bound, ordered, rows, categories.notes)
