"""What a template is made of, what cabinetry gets of it, and the variations that choose the edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma._types import Array
from fivesigma.analysis.choosing import RegionScores, shifts_in, variations_of
from fivesigma.analysis.configuration import Analysis, read_analysis
from fivesigma.analysis.layout import layout_of
from fivesigma.analysis.reading import Reader
from fivesigma.analysis.rewriting import cabinetry_config
from fivesigma.analysis.templates import Template, templates_of
from fivesigma.analysis.training import training_events
from fivesigma.datasets.events import Events
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
        "Luminosity": "1e1",
        "CrossSections": {"Background": {"CrossSection": 0.2, "SumOfWeights": "h_sumw"}},
        "Preselection": "n_jets > 0",
    }
    return out


def rewritten(given: dict[str, Any]) -> tuple[list[Template], dict[str, Any]]:
    analysis = read_analysis(given)
    templates = templates_of(analysis)
    edges = np.array([-np.inf, 0.5, np.inf])
    layout = layout_of(analysis, templates, edges, blind=True, friends=False)
    config = cabinetry_config(analysis, templates, layout)
    assert cabinetry.configuration.validate(config)
    return templates, config


def variations(given: dict[str, Any]) -> tuple[RegionScores, Any, Analysis]:
    analysis = read_analysis(given)
    own = [template for template in templates_of(analysis) if template.region == "Signal_region"]
    nominal = [template for template in own if template.systematic is None and not template.is_data]
    reader = Reader(analysis.settings, nominal[0])
    events = training_events(reader, nominal, analysis.signal)
    scores = RegionScores(
        Model().predict_proba(events)[:, 1],
        events.weight,
        events.is_signal,
        np.asarray(events.process),
        reader.folds(events.kept["eventNumber"]),
    )
    return scores, variations_of(Model(), reader, analysis, own, scores, advance=lambda *_: None), analysis


def test_a_variation_with_files_of_its_own_has_its_own_factor(given: dict[str, Any]) -> None:
    given["Systematics"] = given["Systematics"][1:2]
    given["Systematics"][0]["Up"] = {"SamplePath": "other.root"}
    templates, config = rewritten(given)
    factors = {t.systematic: t.factor for t in templates if t.sample == "Background"}
    assert factors == {None: 1000 * 10 * 0.2 / 2000, "Modeling": 1000 * 10 * 0.2 / 500}
    samples = {sample["Name"]: sample for sample in config["Samples"]}
    assert samples["Background"]["Weight"] == "weight"  # a factor of one
    assert config["Systematics"][0]["Up"] == {"SamplePath": "other.root", "Weight": "4.0*(weight)"}


def test_filters_and_weights_replace_each_other_as_in_cabinetry(given: dict[str, Any]) -> None:
    given["Samples"][2] |= {"Filter": "x > 0", "Weight": "2"}
    given["Systematics"][1]["Up"] |= {"Filter": "x > 1 && n_jets < 4"}
    templates, config = rewritten(given)
    conditions = {(t.region, t.sample, t.systematic): t.condition for t in templates}
    assert conditions["Signal_region", "Signal", None] == "(n_jets > 0) && (lep_charge > 0)"
    assert conditions["Signal_region", "Background", None] == "(n_jets > 0) && (x > 0)"
    assert conditions["Control_region", "Background", None] == "(n_jets > 0) && (x > 0)"
    assert conditions["Signal_region", "Background", "Modeling"] == "(n_jets > 0) && (x > 1 && n_jets < 4)"
    weights = {(t.systematic, t.direction): t.weight for t in templates if t.sample == "Background"}
    assert weights[None, None] == weights["Modeling", "Up"] == "2"
    assert weights["Weighting", "Down"] == "0.7*weight"
    samples = {sample["Name"]: sample for sample in config["Samples"]}
    assert samples["Background"]["Filter"] == "fivesigma_in_Background"
    assert config["Systematics"][1]["Up"] == {"Tree": "background_up", "Filter": "fivesigma_in_Modeling_Up"}
    assert config["Regions"][0]["Binning"] == [0.0, 0.5, 1.01]


def test_variations_are_the_templates_of_the_region(given: dict[str, Any]) -> None:
    nominal, found, _ = variations(given)
    assert list(found) == ["Luminosity", "Modeling", "Weighting"]
    shifts = shifts_in(np.array([0.0, 0.5, 1.01]), nominal, found)
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


def test_systematics_of_one_modifier_move_together(given: dict[str, Any]) -> None:
    """One of them mirrored, the other not."""
    given["Systematics"][0] |= {"Samples": "Signal", "ModifierName": "both"}
    given["Systematics"][1]["ModifierName"] = "both"
    nominal, found, _ = variations(given)
    assert list(found) == ["both", "Weighting"]
    separate = shifts_in(np.array([0.0, 0.5, 1.01]), nominal, found)
    up, down, unmoved = separate.up["both"], separate.down["both"], separate.nominal
    np.testing.assert_allclose(down["Background"], 2 * unmoved["Background"].sum_of_weights - up["Background"])
    np.testing.assert_allclose(down["Signal"], 0.95 * unmoved["Signal"].sum_of_weights)
