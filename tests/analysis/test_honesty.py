"""What is quoted holds for the fit: free norms, fixed parameters, variations without effect, fits that fail."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma.analysis import Record, analyse
from fivesigma.analysis.cabinetry_workspace import fit_workspace, listening
from fivesigma.analysis.histograms import Filled, notes_on_bins
from fivesigma.analysis.step_record import condensed
from fivesigma.errors import InputError
from tests.analysis.conftest import Small
from tests.analysis.ntuples import N, branches, make, write

pytest.importorskip("cabinetry")
pyhf = pytest.importorskip("pyhf")


def run(given: dict[str, Any], out: Path, **options: Any) -> Record:
    return analyse(given, out, n_jobs=1, say=None, **options)


def alone(small: Small) -> dict[str, Any]:
    """The chosen region by itself, without systematics."""
    given = copy.deepcopy(small.config)
    given["Regions"], given["Systematics"] = given["Regions"][:1], []
    return given


def test_a_free_norm_of_the_background_is_in_the_quoted_number(small: Small, tmp_path: Path) -> None:
    given = alone(small)
    known = run(given, tmp_path / "known")
    given["NormFactors"].append({"Name": "bkg", "Samples": "Background", "Nominal": 1, "Bounds": [0, 10]})
    free = run(given, tmp_path / "free")
    before, after = (record["categorise"]["cross_fitted"] for record in (known, free))
    assert [name for name, _ in after["waterfall"]] == ["known background", "bkg", "simulation"]
    assert after["significance"] < 0.8 * before["significance"]
    given["Fivesigma"]["Categories"] = {"Number": 1}  # which cannot measure it
    one = run(given, tmp_path / "one")
    assert one["categorise"]["cross_fitted"]["significance"] == pytest.approx(0.0, abs=1e-6)
    assert one["workspace"]["significance"] == pytest.approx(0.0, abs=1e-3)


def test_a_norm_that_is_not_one_scales_the_background(small: Small, tmp_path: Path) -> None:
    given = alone(small)
    given["NormFactors"].append({"Name": "bkg", "Samples": "Background", "Nominal": 4})
    given["General"]["Fixed"] = [{"Name": "bkg", "Value": 4}]
    found = run(given, tmp_path / "out")
    assert found["read"]["norms"] == {}
    given["Samples"][2]["Weight"] = "4 * weight"
    del given["NormFactors"][1], given["General"]["Fixed"]
    same = run(given, tmp_path / "same")
    for key in ("s", "b"):
        first, second = (one["categorise"][key]["Signal_region"] for one in (found, same))
        np.testing.assert_allclose(first, second, rtol=1e-9)


def test_a_fixed_systematic_is_not_profiled(small: Small, tmp_path: Path) -> None:
    given = copy.deepcopy(small.config)
    given["General"]["Fixed"] = [{"Name": "Weighting", "Value": 0}]
    found = run(given, tmp_path / "out")["categorise"]
    assert found["systematics"] == ["Luminosity", "Modeling"]
    assert found["cross_fitted"]["significance"] > small.record["categorise"]["cross_fitted"]["significance"]


@pytest.mark.parametrize("categories", [{"Number": 2}, "Cut"], ids=["categories", "cut"])
def test_a_systematic_of_the_signal_alone(small: Small, tmp_path: Path, categories: Any) -> None:
    given = copy.deepcopy(small.config)
    given["Fivesigma"]["Categories"] = categories
    both = {"Up": {"Normalization": 0.1}, "Down": {"Normalization": -0.1}}
    given["Systematics"].append({"Name": "theory", "Type": "Normalization", "Samples": "Signal", **both})
    record = run(given, tmp_path / "out")
    assert "theory" in record["categorise"]["systematics"]
    assert any("'theory' moves no background" in note for note in record["categorise"]["notes"])
    assert (tmp_path / "out" / "report.html").exists()


def test_variations_without_effect_and_with_few_events_are_said(small: Small, tmp_path: Path) -> None:
    trees = {"signal": branches("signal"), "background": branches("background"), "pseudodata": branches("data", 600)}
    trees["background_up"] = branches("background", N // 25)
    given = copy.deepcopy(small.config)
    given["General"]["InputPath"] = str(write(tmp_path / "n.root", trees))
    given["Systematics"][2] |= {"Up": {"Weight": "1.2*weight"}, "Down": {"Weight": "1.2*weight"}}
    same = {"Up": {"Tree": "background"}, "Down": {"Symmetrize": True}}
    given["Systematics"].append({"Name": "none", "Type": "NormPlusShape", "Samples": "Background", **same})
    record = run(given, tmp_path / "out")
    said = [*record["read"]["notes"], *record["categorise"]["notes"], *record["workspace"]["notes"]]
    assert any("systematic 'Modeling' Up has 60 entries for 1,500 nominal ones" in note for note in said)
    assert any("systematic 'none' Up is the nominal sample: it changes nothing" in note for note in said)
    assert "systematic 'none' is identical to the nominal events: it changes nothing" in said
    assert any(note.startswith("systematic 'Weighting' moves the background up and down by the same") for note in said)


def test_many_empty_bins_are_one_line() -> None:
    empty, negative = (
        Filled(np.zeros(3), np.zeros(3), np.zeros(3)),
        Filled(np.array([1.0, -2.0, 3.0]), *np.ones((2, 3))),
    )
    keys = [(None, None), *((f"s{k}", side) for k in range(15) for side in ("Up", "Down"))]
    histograms = {("CR", "tt", name, side): empty for name, side in keys} | {("CR", "Z", None, None): negative}
    notes = notes_on_bins(histograms)
    assert notes == [
        "'tt' has no yield in bins 0, 1, 2 of region 'CR' (31 templates)",
        "'Z' has a negative yield in bin 1 of region 'CR'",
    ]


def test_empty_bins_of_a_control_region_are_said_before_the_training(small: Small, tmp_path: Path) -> None:
    given = copy.deepcopy(small.config)
    given["Regions"][1]["Binning"] = [0, 10, 100, 600]  # no jet is below 30
    record = run(given, tmp_path / "out", only="read")
    assert "'Signal' has no yield in bin 0 of region 'Control_region'" in record["read"]["notes"]


def test_many_notes_of_one_kind_are_one_line() -> None:
    same = [f"JES{k} up makes the background of category {k} negative, -0.{k} of 1.5e-3" for k in range(5)]
    assert condensed([*same, "another", "another one"]) == [
        f"{same[0]} (and 4 more like this, in analysis.json)", "another", "another one"
    ]  # fmt: skip
    wide = [f"SR/tt{k} has errors above its content in {k} of 9 bins, 1 +- 2 in bin {k}: merge bins" for k in range(6)]
    assert condensed(wide) == [f"{wide[0]} (and 5 more like this, in analysis.json)"]
    bins = [f"'X' has no yield in bin{'s 1, 2' if k % 2 else ' 7'} of region 'F{k}'{' (3 templates)' * (k > 2)}"
            for k in range(6)]  # fmt: skip
    assert condensed(bins) == [f"{bins[0]} (and 5 more like this, in analysis.json)"]
    few = ["sample 'a' is odd", "sample 'b' is odd"]
    assert condensed(few) == few


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")
def test_a_fit_that_fails_says_why() -> None:
    sample = {"name": "s", "data": [0.0], "modifiers": [{"name": "mu", "type": "normfactor", "data": None}]}
    workspace = {
        "channels": [{"name": "c", "samples": [sample]}],
        "observations": [{"name": "c", "data": [float("nan")]}],
        "measurements": [{"name": "m", "config": {"poi": "mu", "parameters": []}}],
        "version": "1.0.0",
    }
    optimizer = pyhf.get_backend()[1]
    with pytest.raises(InputError, match=r"the fit of workspace\.json (failed|gave)"):
        fit_workspace(workspace, "discovery")
    assert pyhf.get_backend()[1] is optimizer


def test_minuit_writes_nothing_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """Its lines come from C++, past sys.stdout; cabinetry asks for them."""
    iminuit = pytest.importorskip("iminuit")
    before = iminuit.Minuit.print_level

    def fit() -> str:
        minuit = iminuit.Minuit(lambda x: np.nan * x, 1.0)
        minuit.print_level = 1
        minuit.migrad()
        return capfd.readouterr().out

    for _ in range(2):  # at first no fit has been loud, then one has
        with listening():
            assert not fit()
        assert iminuit.Minuit.print_level is before
        assert "NaN" in fit()
    iminuit.Minuit(lambda x: x, 1.0).print_level = 0


def test_factors_of_the_luminosity_are_said(small: Small, tmp_path: Path) -> None:
    given = copy.deepcopy(small.config)
    given["Fivesigma"] |= {
        "Luminosity": 10,
        "CrossSections": {"Signal": None, "Background": {"CrossSection": 0.2, "SumOfWeights": "h_sumw"}},
    }
    said: list[str] = []
    record = analyse(given, tmp_path / "out", n_jobs=1, say=said.append, only="read")
    assert record["read"]["normalisation"] == [
        "Background: weights x 1 = 1000 x 10/fb x 0.2 pb / 2000 (h_sumw, 1 file)."
    ]
    assert record["read"]["normalisation"][0] in said


@pytest.mark.parametrize("key", ["RegionPath", "VariationPath"])
def test_paths_of_regions_and_variations(small: Small, tmp_path: Path, key: str) -> None:
    """As in cabinetry: the placeholder of InputPath is replaced by what the region or the variation says."""
    for name in ("", "_other"):
        make(tmp_path / f"n{name}.root")
    given = copy.deepcopy(small.config)
    given["General"]["InputPath"] = f"{tmp_path}/n{{{key}}}.root"
    if key == "RegionPath":
        given["Regions"][0]["RegionPath"], given["Regions"][1]["RegionPath"] = "", "_other"
    else:
        given["Systematics"][1]["Up"]["VariationPath"] = "_other"
    found = run(given, tmp_path / "out")
    assert found["workspace"]["significance"] == pytest.approx(small.record["workspace"]["significance"], abs=1e-6)
    assert sorted(path.name for path in (tmp_path / "out" / "ntuples").glob("*.root")) == ["n.root", "n_other.root"]


def test_the_score_in_another_region(small: Small, tmp_path: Path) -> None:
    given = copy.deepcopy(small.config)
    given["Regions"][1] |= {"Variable": "fivesigma_score", "Binning": [0, 0.3, 1.01]}
    record = run(given, tmp_path / "out")
    assert np.isfinite(record["workspace"]["significance"])
