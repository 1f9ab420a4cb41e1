"""Regions together: what they are worth with shared parameters, and what control regions say of free norm factors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from fivesigma._types import Array
from fivesigma.analysis.configuration import DIRECTIONS, Analysis, acts, find_named, holds, modifier_of
from fivesigma.analysis.histograms import Histograms
from fivesigma.likelihood.shifts import Normalisation, YieldShifts, counts_of, derivatives_of
from fivesigma.significance import AMS2
from fivesigma.yields import ProcessYields

__all__ = ["combine", "norm_widths", "normalisations", "shifts_of_region", "value_as_pyhf"]

_RIDGE = 1e-9  # a pull that nothing constrains gets a huge width, not an infinite one


def shifts_of_region(analysis: Analysis, region: Mapping[str, Any], histograms: Histograms) -> YieldShifts:
    """Yields of the bins of a region, nominal and varied, at the nominal norms."""
    nominal: dict[str, ProcessYields] = {}
    up: dict[str, dict[str, Array]] = {}
    down: dict[str, dict[str, Array]] = {}
    factors = {s["Name"]: analysis.norm_factor(region, s) for s in analysis.simulated if holds(region, s)}
    for name, factor in factors.items():
        filled = histograms[region["Name"], name, None, None]
        is_signal = acts(analysis.poi, region, find_named(analysis.simulated, name))
        nominal[name] = ProcessYields(
            is_signal, factor * filled.yields, factor**2 * filled.squares, filled.entries.astype(int)
        )
    for systematic, sample in analysis.moved(region):
        name, unmoved = modifier_of(systematic), nominal[sample].sum_of_weights
        for side in (up, down):
            side.setdefault(name, {other: rows.sum_of_weights for other, rows in nominal.items()})
        for side, direction in zip((up, down), DIRECTIONS, strict=True):
            if systematic["Type"] == "Normalization":
                side[name][sample] = unmoved * (1.0 + systematic[direction]["Normalization"])
            elif direction == "Down" and systematic["Down"].get("Symmetrize", False):
                side[name][sample] = 2 * unmoved - up[name][sample]
            else:
                moved = histograms[region["Name"], sample, systematic["Name"], direction]
                side[name][sample] = factors[sample] * moved.yields
    n_bins = len(next(iter(nominal.values())).sum_of_weights)
    return YieldShifts(np.arange(n_bins + 1.0), nominal, up, down)


def combine(analysis: Analysis, parts: Mapping[str, YieldShifts], *, free_norms: bool) -> YieldShifts:
    """Bins of several regions as one set of categories whose parameters are shared.

    With control regions among them the norm factors are free; without them they are as the parts have them, with the
    widths that the control regions leave.
    """
    sizes = {region: part.edges.size - 1 for region, part in parts.items()}
    offsets = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))
    total = sum(sizes.values())

    def placed(values: Any, region: str) -> Array:
        out = np.zeros(total)
        out[offsets[region] : offsets[region] + sizes[region]] = values
        return out

    nominal = {
        (region, sample): rows._replace(
            sum_of_weights=placed(rows.sum_of_weights, region),
            sum_of_squares=placed(rows.sum_of_squares, region),
            events=placed(rows.events, region).astype(int),
        )
        for region, part in parts.items()
        for sample, rows in part.nominal.items()
    }
    factors: dict[str, dict[str, list[str]]] = {}
    if free_norms:
        factors = {region: analysis.free_factors(find_named(analysis.regions, region)) for region in parts}
    names = dict.fromkeys(name for part in parts.values() for name in part.up)
    names = dict.fromkeys(name for name in names if not any(name in own for own in factors.values()))
    sides: list[dict[str, dict[str, Array]]] = []
    for which in ("up", "down"):
        side: dict[str, dict[str, Array]] = {}
        for name in names:
            side[name] = {}
            for (region, sample), rows in nominal.items():
                moved = getattr(parts[region], which).get(name)
                values = rows.sum_of_weights if moved is None else placed(moved[sample], region)
                side[name][_key(region, sample)] = values
        sides.append(side)
    free: dict[str, tuple[str, ...]] = {}
    for region, part in parts.items():
        for name in [name for name in part.free if name in names]:
            free[name] = (*free.get(name, ()), *(_key(region, sample) for sample in part.free[name]))
    for name in dict.fromkeys(name for found in factors.values() for name in found):
        scaled = [key for key, rows in nominal.items() if key[1] in factors[key[0]].get(name, ()) and not rows.signal]
        if scaled:
            free[name] = tuple(_key(*key) for key in scaled)
            for side, factor in zip(sides, (2.0, 0.0), strict=True):
                side[name] = {
                    _key(*key): rows.sum_of_weights * (factor if key in scaled else 1.0)
                    for key, rows in nominal.items()
                }
    by_name = {_key(*key): rows for key, rows in nominal.items()}
    return YieldShifts(np.arange(total + 1.0), by_name, sides[0], sides[1], free)


def value_as_pyhf(shifts: YieldShifts, goal: str, without: Collection[str]) -> float:
    """Significance or uncertainty with the ``staterror`` of pyhf, one factor for signal and background of a bin.

    `without` are the samples that have none.
    """
    s, b = shifts.yields(signal=True), shifts.yields(signal=False)
    rows = [row for key, row in shifts.nominal.items() if key.split(" in ")[0] not in without]
    zero = np.zeros_like(b)
    total = sum((row.sum_of_weights for row in rows), start=zero)
    own = total if goal == "measurement" else sum((row.sum_of_weights for row in rows if not row.signal), start=zero)
    relative = np.divide(sum((row.sum_of_squares for row in rows), start=zero), total**2, out=zero, where=total > 0)
    if goal == "measurement":
        return derivatives_of(AMS2(), s, b, shifts, relative * own**2).uncertainty
    return counts_of(AMS2(), s, b, shifts, relative * own**2).significance


def _key(region: str, sample: str) -> str:
    return f"{sample} in {region}"


def norm_widths(analysis: Analysis, control: Histograms) -> dict[str, float | None]:
    """How well control regions know the norm factors that are free in the chosen ones, by their Fisher information.

    The width is a share of the yield; None where the control regions leave the factor free.
    """
    wanted = _free_backgrounds(analysis)
    inside = {key[0] for key in control}
    regions = {region["Name"]: region for region in analysis.fitted if region["Name"] in inside}
    if not wanted or not regions:
        return dict.fromkeys(wanted)
    parts = {name: shifts_of_region(analysis, region, control) for name, region in regions.items()}
    found = combine(analysis, parts, free_norms=True)
    b = found.yields(signal=False)
    variance = b + np.sum([rows.sum_of_squares for rows in found.nominal.values() if not rows.signal], axis=0)
    slopes = np.array([(up - down) / 2 for up, down in found.background_shifts()]).reshape(-1, b.size)
    filled = (b > 0) & (variance > 0)
    information = (slopes[:, filled] / variance[filled]) @ slopes[:, filled].T
    constraint = [0.0 if name in found.free else 1.0 for name in found.up]
    covariance = np.linalg.inv(information + np.diag(constraint) + _RIDGE * np.eye(len(constraint)))
    width = dict(zip(found.up, np.sqrt(np.diag(covariance)).tolist(), strict=True))
    return {name: width[name] if width.get(name, 2.0) <= 1.0 else None for name in wanted}


def normalisations(
    analysis: Analysis, widths: Mapping[str, float | None], regions: Iterable[Mapping[str, Any]]
) -> dict[str, Normalisation]:
    """Free norm factors of chosen regions, with the widths that the control regions leave them."""
    free = _free_backgrounds(analysis, regions)
    return {name: Normalisation(samples, widths[name]) for name, samples in free.items()}


def _free_backgrounds(analysis: Analysis, regions: Iterable[Mapping[str, Any]] | None = None) -> dict[str, list[str]]:
    """Norm factors that are free in chosen regions, with the backgrounds that they scale."""
    found: dict[str, list[str]] = {}
    for region in analysis.chosen if regions is None else regions:
        for name, samples in analysis.free_factors(region).items():
            known = found.get(name, [])
            own = [sample for sample in samples if sample not in analysis.signal and sample not in known]
            if known or own:
                found[name] = [*known, *own]
    return found
