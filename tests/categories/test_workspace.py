"""HistFactory workspaces against pyhf: the schema and the expected discovery significance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma._types import Array, IntArray
from fivesigma.categories import Categories, categorise
from fivesigma.categories.workspace import discovery_significance, to_pyhf, write_workspace
from fivesigma.errors import InputError
from fivesigma.likelihood.shifts import Varied, YieldShifts, yield_shifts

pyhf = pytest.importorskip("pyhf")
pytestmark = pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")  # pyhf 0.7.6 uses it


def events(n: int = 20_000) -> tuple[Array, IntArray, Array, Array]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    process = np.where(y == 1, "H", np.where(np.arange(n) % 4 == 0, "Z", "ttbar"))
    weight = np.where(y == 1, 250.0, 40_000.0) / n * rng.gamma(3.0, size=n)
    return rng.normal(1.5 * y), y, weight, process


def filled(n_categories: int, min_effective: float = 10) -> Categories:
    score, y, weight, process = events()
    return categorise(score, y, weight, n_categories, min_effective=min_effective, process=process)


def shifted(categories: Categories) -> YieldShifts:
    score, y, weight, process = events()
    ttbar = process == "ttbar"
    return yield_shifts(
        categories.edges,
        score,
        y,
        weight,
        {
            "xs_ttbar": (
                Varied(weight=weight * np.where(ttbar, 1.1, 1.0)),
                Varied(weight=weight * np.where(ttbar, 0.9, 1.0)),
            ),
            "tes": (Varied(score=score + 0.03), Varied(score=score - 0.02)),
        },
        process=process,
    )


@pytest.mark.parametrize("n_categories", range(1, 11))
def test_pyhf_agrees_without_uncertainties(n_categories: int) -> None:
    categories = filled(n_categories)
    workspace = to_pyhf(categories, staterror=False)
    pyhf.schema.validate(workspace, "workspace.json")
    assert discovery_significance(workspace) == pytest.approx(categories.significance, rel=1e-4)


@pytest.mark.parametrize("n_categories", [1, 3])
def test_uncertainties_lower_the_significance(n_categories: int) -> None:
    categories = filled(n_categories, min_effective=200)
    shifts = shifted(categories)
    with_systematics = to_pyhf(categories, shifts, staterror=False)
    with_both = to_pyhf(categories, shifts)
    pyhf.schema.validate(with_both, "workspace.json")
    stat = discovery_significance(to_pyhf(categories))
    syst = discovery_significance(with_systematics)
    assert stat < 0.995 * categories.significance
    assert syst < 0.9 * categories.significance
    assert discovery_significance(with_both) < min(stat, syst)
    assert shifts.significance == pytest.approx(syst, rel=0.02)


@pytest.mark.parametrize("n_categories", [1, 4])
def test_pyhf_agrees_on_shifts(n_categories: int) -> None:
    categories = filled(n_categories, min_effective=100)
    shifts = shifted(categories)
    workspace = to_pyhf(categories, shifts, staterror=False)
    assert shifts.significance < 0.9 * shifts.known_background
    assert discovery_significance(workspace) == pytest.approx(shifts.significance, abs=1e-6)


def test_modifiers_say_what_moved() -> None:
    categories = filled(3)
    samples = {s["name"]: s for s in to_pyhf(categories, shifted(categories))["channels"][0]["samples"]}
    kinds = {name: [(m["name"], m["type"]) for m in s["modifiers"]] for name, s in samples.items()}
    tes, stat = ("tes", "histosys"), ("staterror_categories", "staterror")
    assert kinds == {
        "H": [("mu", "normfactor"), tes],
        "Z": [stat, tes],
        "ttbar": [stat, ("xs_ttbar", "histosys"), tes],
    }
    np.testing.assert_allclose(samples["Z"]["modifiers"][0]["data"], np.sqrt(categories.by_process["Z"].sum_of_squares))
    np.testing.assert_allclose(samples["Z"]["modifiers"][1]["data"]["hi_data"], shifted(categories).up["tes"]["Z"])


def test_a_process_that_vanishes_is_a_histosys() -> None:
    score, y, weight, process = events()
    categories = filled(2)
    gone = Varied(weight=weight * np.where(process == "Z", 0.0, 1.0))
    shifts = yield_shifts(categories.edges, score, y, weight, {"off": (gone, None)}, process=process)
    workspace = to_pyhf(categories, shifts)
    pyhf.schema.validate(workspace, "workspace.json")
    modifiers = {s["name"]: s["modifiers"] for s in workspace["channels"][0]["samples"]}
    assert [m["type"] for m in modifiers["Z"]] == ["staterror", "histosys"]
    assert modifiers["Z"][1]["data"]["hi_data"] == [0.0, 0.0]
    assert [m["type"] for m in modifiers["ttbar"]] == ["staterror"]


def test_written_and_read_back(tmp_path: Path) -> None:
    workspace = to_pyhf(filled(2))
    path = write_workspace(workspace, tmp_path / "workspace.json")
    assert json.loads(path.read_text(encoding="utf-8")) == workspace
    assert pyhf.Workspace(workspace).model().config.poi_name == "mu"


def test_observed_events() -> None:
    categories = filled(2)
    assert to_pyhf(categories)["observations"][0]["data"] == pytest.approx((categories.s + categories.b).tolist())
    assert to_pyhf(categories, data=[3, 4], channel="SR")["observations"] == [{"name": "SR", "data": [3.0, 4.0]}]
    with pytest.raises(InputError, match=r"data has shape \(3,\) for 2 categories"):
        to_pyhf(categories, data=[1, 2, 3])


def test_where_scipy_fails_minuit_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = to_pyhf(filled(3))
    expected = discovery_significance(workspace)
    fit = pyhf.infer.mle.fixed_poi_fit

    def failing(*args: Any, **options: Any) -> Any:
        if pyhf.get_backend()[1].name == "scipy":
            raise pyhf.exceptions.FailedMinimization({"message": "Inequality constraints incompatible"})
        return fit(*args, **options)

    monkeypatch.setattr(pyhf.infer.mle, "fixed_poi_fit", failing)
    pytest.importorskip("iminuit")
    assert discovery_significance(workspace) == pytest.approx(expected, rel=1e-3)
    assert pyhf.get_backend()[1].name == "scipy"


@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
def test_what_cannot_be_fitted_is_refused() -> None:
    score, y, weight, process = events()
    categories = filled(2)
    with pytest.raises(InputError, match="systematics have other edges or processes"):
        to_pyhf(categories, shifted(filled(3)))
    some = (y == 1) | (score < categories.edges[1])
    empty = categories.evaluate(score[some], y[some], weight[some], process=process[some])
    with pytest.raises(InputError, match="category 1 has b = 0; a fit needs background"):
        to_pyhf(empty)
