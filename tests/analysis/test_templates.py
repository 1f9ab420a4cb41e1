"""What a template is made of, and the variations that choose the edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma._types import Array
from fivesigma.analysis.all_regions import shifts_of_regions
from fivesigma.analysis.analysis_file import read_analysis
from fivesigma.analysis.cabinetry_workspace import cabinetry_config
from fivesigma.analysis.edge_choice import events_of_region, systematics_of
from fivesigma.analysis.histograms import fill_histogram
from fivesigma.analysis.ntuple_reader import Reader
from fivesigma.analysis.scoring import Scorer
from fivesigma.analysis.templates import Template, templates_of
from fivesigma.datasets.events import Events
from fivesigma.likelihood.shifts import YieldShifts, yield_shifts
from tests.analysis.ntuples import branches, config, make, write

cabinetry = pytest.importorskip("cabinetry")
pytest.importorskip("uproot")


class Model:
    """Scores events by x."""

    def predict_proba(self, events: Events) -> Array:
        p = 1 / (1 + np.exp(-events.column("x").astype(np.float64)))
        return np.column_stack([1 - p, p])


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    make(tmp_path / "ntuples.root")
    write(tmp_path / "other.root", {"background": branches("background", 700, 1.2)}, h_sumw=500.0)
    out = config(tmp_path / "ntuples.root")
    out["General"]["InputPath"] = f"{tmp_path}/{{SamplePath}}"
    for sample in out["Samples"]:
        sample["SamplePath"] = "ntuples.root"
    out["Fivesigma"] |= {
        "Luminosity": 1e1,
        "CrossSections": {"Signal": None, "Background": {"CrossSection": 0.2, "SumOfWeights": "h_sumw"}},
        "Preselection": "n_jets > 0",
    }
    return out


def planned(given: dict[str, Any]) -> list[Template]:
    """Templates of a configuration that cabinetry takes as it is rewritten."""
    analysis = read_analysis(given)
    binning = {"Signal_region": np.array([0.0, 0.5, 1.01]), "Control_region": np.array([30.0, 600.0])}
    assert cabinetry.configuration.validate(cabinetry_config(analysis, binning)[0])
    return templates_of(analysis)


def variations(given: dict[str, Any], folder: Path) -> YieldShifts:
    """Yields of the chosen region in two bins of the score."""
    analysis = read_analysis(given)
    templates = templates_of(analysis)
    nominal = [t for t in templates if t.region == "Signal_region" and t.systematic is None and not t.is_data]
    (folder / "out").mkdir()
    first, second = (
        Scorer(analysis, templates, Reader(analysis.settings, nominal[0]), folder / "out") for _ in range(2)
    )
    first.write({"fivesigma_score": Model()}, friends=False, advance=lambda *_: None)
    second.find(advance=lambda *_: None)
    scored, again = first.events, second.events
    assert scored.keys() == again.keys()
    assert not first.plain
    for key, events in scored.items():
        for name in ("score", "weight", "ids", "signal", "process"):
            np.testing.assert_array_equal(getattr(events, name), getattr(again[key], name))
    edges = np.array([0.0, 0.5, 1.01])
    found = {key: fill_histogram(edges, events.score, events.arrays()[2]) for key, events in scored.items()}
    shifts = shifts_of_regions(analysis, found, analysis.chosen)
    # The events that choose the edges have the same yields.
    region = events_of_region(analysis, analysis.chosen[0], scored, {})
    direct = yield_shifts(edges, region.nominal, systematics=systematics_of(region.variations))
    for ours, theirs in ((shifts.up, direct.up), (shifts.down, direct.down)):
        assert list(ours) == list(theirs)
        for name in ours:
            for process in direct.nominal:
                np.testing.assert_allclose(ours[name][process], theirs[name][process], rtol=1e-12)
    return shifts


def test_a_variation_with_files_of_its_own_has_its_own_factor(given: dict[str, Any]) -> None:
    given["Systematics"] = given["Systematics"][1:2]
    given["Systematics"][0]["Up"] = {"SamplePath": "other.root"}
    templates = planned(given)
    factors = {t.systematic: t.factor for t in templates if t.sample == "Background"}
    assert factors == {None: 1000 * 10 * 0.2 / 2000, "Modeling": 1000 * 10 * 0.2 / 500}


def test_filters_and_weights_replace_each_other_as_in_cabinetry(given: dict[str, Any]) -> None:
    given["Samples"][2] |= {"Filter": "x > 0", "Weight": "2"}
    given["Systematics"][1]["Up"] |= {"Filter": "x > 1 && n_jets < 4"}
    templates = planned(given)
    conditions = {(t.region, t.sample, t.systematic): t.condition for t in templates}
    assert conditions["Signal_region", "Signal", None] == "(n_jets > 0) && (lep_charge > 0)"
    assert conditions["Signal_region", "Background", None] == "(n_jets > 0) && (x > 0)"
    assert conditions["Control_region", "Background", None] == "(n_jets > 0) && (x > 0)"
    assert conditions["Signal_region", "Background", "Modeling"] == "(n_jets > 0) && (x > 1 && n_jets < 4)"
    weights = {(t.systematic, t.direction): t.weight for t in templates if t.sample == "Background"}
    assert weights[None, None] == weights["Modeling", "Up"] == "2"
    assert weights["Weighting", "Down"] == "0.7*weight"


def test_variations_are_the_templates_of_the_region(given: dict[str, Any], tmp_path: Path) -> None:
    shifts = variations(given, tmp_path)
    assert list(shifts.up) == ["Luminosity", "Modeling", "Weighting"]
    flat = branches("background")
    rows = flat["lep_charge"] > 0
    factor = 1000 * 10 * 0.2 / 2000

    def by_hand(events: dict[str, Any], rows: Any, scale: float) -> Any:
        score = 1 / (1 + np.exp(-events["x"].astype(np.float32).astype(np.float64)))
        return np.histogram(score[rows], [0, 0.5, 1.01], weights=scale * events["weight"][rows])[0]

    unmoved = by_hand(flat, rows, factor)
    moved = branches("background", 1300, 1.05)
    up = by_hand(moved, moved["lep_charge"] > 0, factor)
    np.testing.assert_allclose(shifts.nominal["Background"].sum_of_weights, unmoved)
    np.testing.assert_allclose(shifts.up["Modeling"]["Background"], up)
    np.testing.assert_allclose(shifts.down["Modeling"]["Background"], 2 * unmoved - up)
    np.testing.assert_allclose(shifts.down["Weighting"]["Background"], 0.7 * unmoved)
    np.testing.assert_allclose(shifts.down["Luminosity"]["Background"], 0.95 * unmoved)
    signal = shifts.nominal["Signal"].sum_of_weights
    np.testing.assert_allclose(shifts.up["Luminosity"]["Signal"], 1.05 * signal)
    np.testing.assert_allclose(shifts.up["Modeling"]["Signal"], signal)


def test_systematics_of_one_modifier_move_together(given: dict[str, Any], tmp_path: Path) -> None:
    """One of them mirrored, the other not."""
    given["Systematics"][0] |= {"Samples": "Signal", "ModifierName": "both"}
    given["Systematics"][1]["ModifierName"] = "both"
    separate = variations(given, tmp_path)
    assert list(separate.up) == ["both", "Weighting"]
    up, down, unmoved = separate.up["both"], separate.down["both"], separate.nominal
    np.testing.assert_allclose(down["Background"], 2 * unmoved["Background"].sum_of_weights - up["Background"])
    np.testing.assert_allclose(down["Signal"], 0.95 * unmoved["Signal"].sum_of_weights)


def test_the_number_of_an_entry_is_that_in_the_whole_tree(given: dict[str, Any]) -> None:
    """Else an event that passes a cut would be scored by a fit that has seen it."""
    given["Fivesigma"]["EventNumber"] = "entry"
    template = next(t for t in planned(given) if t.sample == "Background" and t.region == "Signal_region")
    reader = Reader(read_analysis(given).settings, template)
    passed = reader.read(template.trees[0], template.owner, cut=template.condition)
    np.testing.assert_array_equal(passed.number, np.flatnonzero(branches("background")["lep_charge"] > 0))
