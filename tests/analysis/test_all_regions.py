"""Regions together: shared parameters, free norm factors, and what control regions say of them; pyhf is the oracle."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from fivesigma.analysis.all_regions import norm_widths, shifts_of_regions
from fivesigma.analysis.analysis_file import read_analysis
from fivesigma.analysis.configuration import Analysis, acts
from fivesigma.analysis.histograms import Histograms, read_histograms
from fivesigma.categories.workspace import discovery_significance
from tests.analysis.conftest import Small

pytest.importorskip("pyhf")
pytestmark = pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")


def with_factor(small: Small, **factor: Any) -> tuple[Analysis, Histograms]:
    """The small analysis with a free norm factor of the background."""
    given = copy.deepcopy(small.config)
    if factor:
        given["NormFactors"].append({"Name": "bkg", "Samples": "Background", "Bounds": [0, 10]} | factor)
    histograms = read_histograms(small.out / "control.npz") | read_histograms(small.out / "chosen.npz")
    return read_analysis(given), histograms


def by_pyhf(analysis: Analysis, histograms: Histograms) -> float:
    """The same likelihood: variations as histosys, the statistics of the background alone."""
    channels, observations = [], []
    for region in analysis.regions:
        shifts = shifts_of_regions(analysis, histograms, [region])
        samples: list[dict[str, Any]] = []
        for sample in analysis.simulated:
            rows = shifts.nominal[sample["Name"]]
            modifiers: list[dict[str, Any]] = [
                {
                    "name": name,
                    "type": "histosys",
                    "data": {
                        "hi_data": shifts.up[name][sample["Name"]].tolist(),
                        "lo_data": shifts.down[name][sample["Name"]].tolist(),
                    },
                }
                for name in shifts.up
                if name not in shifts.free
            ]
            modifiers += [
                {"name": factor["Name"], "type": "normfactor", "data": None}
                for factor in analysis.config["NormFactors"]
                if acts(factor, region, sample)
            ]
            if not rows.signal:
                errors = np.sqrt(rows.sum_of_squares).tolist()
                modifiers.append({"name": f"stat_{region['Name']}", "type": "staterror", "data": errors})
            samples.append({"name": sample["Name"], "data": rows.sum_of_weights.tolist(), "modifiers": modifiers})
        channels.append({"name": region["Name"], "samples": samples})
        observations.append({"name": region["Name"], "data": [1.0] * len(samples[0]["data"])})
    config = {"poi": "Signal_norm", "parameters": []}
    measurement = [{"name": "m", "config": config}]
    return discovery_significance(
        {"channels": channels, "observations": observations, "measurements": measurement, "version": "1.0.0"}
    )


@pytest.mark.parametrize("factor", [{}, {"Nominal": 1}, {"Regions": "Signal_region"}, {"Nominal": 4}])
def test_the_significance_of_all_regions_is_that_of_pyhf(small: Small, factor: dict[str, Any]) -> None:
    analysis, histograms = with_factor(small, **factor)
    found = shifts_of_regions(analysis, histograms, analysis.regions)
    assert set(found.free) == ({"bkg"} if factor else set())
    assert found.waterfall()[-1][1] == pytest.approx(by_pyhf(analysis, histograms), abs=2e-3)


def test_a_control_region_knows_a_norm_factor(small: Small) -> None:
    analysis, histograms = with_factor(small, Nominal=1)
    control = {key: filled for key, filled in histograms.items() if key[0] == "Control_region"}
    width = norm_widths(analysis, control)["bkg"]
    assert width is not None
    # Without systematics it is the statistical error of the region, of expectation and simulation.
    analysis = Analysis(analysis.config | {"Systematics": []}, analysis.settings)
    alone = norm_widths(analysis, control)["bkg"]
    rows = control["Control_region", "Background", None, None]
    weight = rows.yields**2 / (rows.yields + rows.squares)
    assert alone is not None
    assert alone == pytest.approx(weight.sum() ** -0.5, rel=1e-6)
    assert alone < width
    assert norm_widths(analysis, {}) == {"bkg": None}


def test_a_norm_factor_of_the_chosen_region_alone_stays_free(small: Small) -> None:
    analysis, histograms = with_factor(small, Regions="Signal_region")
    control = {key: filled for key, filled in histograms.items() if key[0] == "Control_region"}
    assert norm_widths(analysis, control) == {"bkg": None}
