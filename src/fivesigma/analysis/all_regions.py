"""All regions together: what control regions say of uncertainties and of free norm factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fivesigma._types import Array
from fivesigma.analysis.configuration import DIRECTIONS, Analysis, acts, find_named, holds, modifier_of
from fivesigma.analysis.histograms import Histograms
from fivesigma.likelihood.shifts import Normalisation, YieldShifts
from fivesigma.yields.processes import ProcessYields

__all__ = ["combine", "norm_widths", "normalisations", "shifts_of_region"]

_RIDGE = 1e-9  # a pull that nothing constrains gets a huge width, not an infinite one


def shifts_of_region(analysis: Analysis, region: Mapping[str, Any], histograms: Histograms) -> YieldShifts:
    """Yields of the bins of a region, nominal and varied, at the nominal norms."""
    poi = find_named(analysis.config["NormFactors"], analysis.config["General"]["POI"])
    nominal: dict[str, ProcessYields] = {}
    up: dict[str, dict[str, Array]] = {}
    down: dict[str, dict[str, Array]] = {}
    samples = [sample for sample in analysis.simulated if holds(region, sample)]
    for sample in samples:
        filled, factor = histograms[region["Name"], sample["Name"], None, None], analysis.norm_factor(region, sample)
        nominal[sample["Name"]] = ProcessYields(
            acts(poi, region, sample), factor * filled.yields, factor**2 * filled.squares, filled.entries.astype(int)
        )
    for systematic in analysis.varied:
        for sample in [sample for sample in samples if acts(systematic, region, sample)]:
            name, key = modifier_of(systematic), sample["Name"]
            unmoved, factor = nominal[key].sum_of_weights, analysis.norm_factor(region, sample)
            for side in (up, down):
                side.setdefault(name, {other: rows.sum_of_weights for other, rows in nominal.items()})
            for side, direction in zip((up, down), DIRECTIONS, strict=True):
                if systematic["Type"] == "Normalization":
                    side[name][key] = unmoved * (1.0 + systematic[direction]["Normalization"])
                elif direction == "Down" and systematic["Down"].get("Symmetrize", False):
                    side[name][key] = 2 * unmoved - up[name][key]
                else:
                    moved = histograms[region["Name"], key, systematic["Name"], direction]
                    side[name][key] = factor * moved.yields
    n_bins = len(next(iter(nominal.values())).sum_of_weights)
    return YieldShifts(np.arange(n_bins + 1.0), nominal, up, down)


def combine(analysis: Analysis, parts: Mapping[str, YieldShifts]) -> YieldShifts:
    """Bins of several regions as one set of categories whose parameters are shared.

    Parameters
    ----------
    analysis : Analysis
    parts : mapping of str to YieldShifts
        By region.
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
    factors = {region: analysis.free_factors(find_named(analysis.regions, region)) for region in parts}
    names = [name for part in parts.values() for name in part.up]
    names = [name for name in dict.fromkeys(names) if not any(name in free for free in factors.values())]
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
    for name in dict.fromkeys(name for found in factors.values() for name in found):
        scaled = [
            (region, sample) for (region, sample), rows in nominal.items()
            if sample in factors[region].get(name, ()) and not rows.signal
        ]  # fmt: skip
        if scaled:
            free[name] = tuple(_key(*key) for key in scaled)
            for side, factor in zip(sides, (2.0, 0.0), strict=True):
                side[name] = {
                    _key(*key): rows.sum_of_weights * (factor if key in scaled else 1.0)
                    for key, rows in nominal.items()
                }
    by_name = {_key(*key): rows for key, rows in nominal.items()}
    return YieldShifts(np.arange(total + 1.0), by_name, sides[0], sides[1], free)


def _key(region: str, sample: str) -> str:
    return f"{sample} in {region}"


def norm_widths(analysis: Analysis, control: Histograms) -> dict[str, float | None]:
    """How well the control regions know the norm factors that are free in the chosen one, by their Fisher information.

    Parameters
    ----------
    analysis : Analysis
    control : Histograms
        Of the regions whose variable is not the score.

    Returns
    -------
    dict of str to float or None
        Relative width; None where the control regions leave the factor free.
    """
    wanted = {
        name: [sample for sample in samples if sample not in analysis.signal]
        for name, samples in analysis.free_factors(analysis.chosen).items()
    }
    wanted = {name: samples for name, samples in wanted.items() if samples}
    regions = {r["Name"]: r for r in analysis.regions if any(key[0] == r["Name"] for key in control)}
    if not wanted or not regions:
        return dict.fromkeys(wanted)
    found = combine(analysis, {name: shifts_of_region(analysis, region, control) for name, region in regions.items()})
    b = found.yields(signal=False)
    variance = b + np.sum([rows.sum_of_squares for rows in found.nominal.values() if not rows.signal], axis=0)
    slopes = np.array([(up - down) / 2 for up, down in found.background_shifts()]).reshape(-1, b.size)
    filled = (b > 0) & (variance > 0)
    information = (slopes[:, filled] / variance[filled]) @ slopes[:, filled].T
    constraint = [0.0 if name in found.free else 1.0 for name in found.up]
    covariance = np.linalg.inv(information + np.diag(constraint) + _RIDGE * np.eye(len(constraint)))
    width = dict(zip(found.up, np.sqrt(np.diag(covariance)).tolist(), strict=True))
    return {name: width[name] if width.get(name, 2.0) <= 1.0 else None for name in wanted}


def normalisations(analysis: Analysis, widths: Mapping[str, float | None]) -> dict[str, Normalisation]:
    """Free norm factors of the chosen region, with the widths that the control regions leave them."""
    free = analysis.free_factors(analysis.chosen)
    return {
        name: Normalisation([sample for sample in free[name] if sample not in analysis.signal], width)
        for name, width in widths.items()
    }
