"""Regions together: what their bins are worth with shared parameters, and what control regions say of norm factors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fivesigma._types import Array
from fivesigma.analysis.configuration import Analysis, acts
from fivesigma.analysis.histograms import Histograms
from fivesigma.likelihood.shifts import Normalisation, YieldShifts, counts_of, derivatives_of
from fivesigma.significance import AMS2
from fivesigma.yields import ProcessYields

_RIDGE = 1e-9  # a pull that nothing constrains gets a huge width, not an infinite one


def shifts_of_regions(
    analysis: Analysis,
    histograms: Histograms,
    regions: Sequence[Mapping[str, Any]],
    widths: Mapping[str, float | None] | None = None,
) -> YieldShifts:
    """Yields of the bins of some regions, one region after the other, at the nominal norms; nominal and varied.

    A sample is a process of its own in each region, and the parameters are shared. Norm factors of backgrounds are
    free, or have the widths that the control regions leave them where these are not among the regions.
    """
    samples = {region["Name"]: analysis.samples_in(region) for region in regions}
    processes = {
        (region, sample["Name"]): sample["Name"] if len(regions) == 1 else f"{sample['Name']} in {region}"
        for region, inside in samples.items()
        for sample in inside
    }
    sizes = {place[0]: len(histograms[*place, None, None].yields) for place in processes}
    first = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))

    def placed(region: str, values: Array) -> Array:
        """Values of the bins of a region among those of all."""
        out = np.zeros(sum(sizes.values()))
        out[first[region] : first[region] + sizes[region]] = values
        return out

    nominal, factors = {}, {}
    free: dict[str, list[str]] = {}
    for region in regions:
        name = region["Name"]
        for sample in samples[name]:
            place = name, sample["Name"]
            factor = factors[place] = analysis.norm_factor(region, sample)
            filled, is_signal = histograms[*place, None, None], acts(analysis.poi, region, sample)
            sums = placed(name, factor * filled.yields), placed(name, factor**2 * filled.squares)
            nominal[processes[place]] = ProcessYields(is_signal, *sums, placed(name, filled.entries).astype(int))
            for norm, scaled in analysis.free_factors(region).items():
                if sample["Name"] in scaled and not is_signal:
                    free.setdefault(norm, []).append(processes[place])
    unmoved = {process: rows.sum_of_weights for process, rows in nominal.items()}
    up: dict[str, dict[str, Array]] = {}
    down: dict[str, dict[str, Array]] = {}
    for name, variation in analysis.variations(regions, processes).items():
        for moved, side in zip((up, down), (variation.up, variation.down), strict=True):
            parts: dict[str, list[Array]] = {}
            for share, key in side:
                values = placed(key[0], share * factors[key[:2]] * histograms[key].yields)
                parts.setdefault(processes[key[:2]], []).append(values)
            moved[name] = unmoved | {process: np.sum(own, axis=0) for process, own in parts.items()}
    known = dict.fromkeys(free) if widths is None else {norm: widths[norm] for norm in free}
    for norm, own in free.items():
        for moved, sign in ((up, 1), (down, -1)):
            factor = 1 + sign * (known[norm] or 1.0)
            moved[norm] = {process: values * (factor if process in own else 1.0) for process, values in unmoved.items()}
    unconstrained = {norm: tuple(own) for norm, own in free.items() if known[norm] is None}
    return YieldShifts(np.arange(sum(sizes.values()) + 1.0), nominal, up, down, unconstrained)


def value_as_pyhf(shifts: YieldShifts, analysis: Analysis) -> float:
    """Significance or uncertainty with the ``staterror`` of pyhf, one factor for signal and background of a bin."""
    goal = analysis.settings.goal
    without = [sample["Name"] for sample in analysis.simulated if sample.get("DisableStaterror", False)]
    s, b = shifts.yields(signal=True), shifts.yields(signal=False)
    rows = [row for key, row in shifts.nominal.items() if key.split(" in ")[0] not in without]
    zero = np.zeros_like(b)
    total = sum((row.sum_of_weights for row in rows), start=zero)
    own = total if goal == "measurement" else sum((row.sum_of_weights for row in rows if not row.signal), start=zero)
    relative = np.divide(sum((row.sum_of_squares for row in rows), start=zero), total**2, out=zero, where=total > 0)
    if goal == "measurement":
        return derivatives_of(AMS2(), s, b, shifts, relative * own**2).uncertainty
    return counts_of(AMS2(), s, b, shifts, relative * own**2).significance


def norm_widths(analysis: Analysis, control: Histograms) -> dict[str, float | None]:
    """How well control regions know the norm factors that are free in the chosen ones, by their Fisher information.

    The width is a share of the yield; None where the control regions leave the factor free.
    """
    wanted = _free_backgrounds(analysis, analysis.chosen)
    inside = {key[0] for key in control}
    regions = [region for region in analysis.fitted if region["Name"] in inside]
    if not wanted or not regions:
        return dict.fromkeys(wanted)
    found = shifts_of_regions(analysis, control, regions)
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


def _free_backgrounds(analysis: Analysis, regions: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Norm factors that are free in some regions, with the backgrounds that they scale."""
    found: dict[str, list[str]] = {}
    for region in regions:
        for name, samples in analysis.free_factors(region).items():
            for sample in samples:
                if sample not in analysis.signal and sample not in found.get(name, []):
                    found.setdefault(name, []).append(sample)
    return found
