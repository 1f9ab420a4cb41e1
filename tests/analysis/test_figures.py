"""Figures for the note: what is drawn, which data are hidden, and the check of overtraining."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma.analysis import analyse, figures
from fivesigma.analysis.cabinetry_workspace import listening
from fivesigma.analysis.figures import Album, draw_fit
from tests.analysis.conftest import Small
from tests.analysis.ntuples import branches

pytest.importorskip("matplotlib")
pytest.importorskip("mplhep")
pytestmark = pytest.mark.filterwarnings(
    "ignore:jsonschema.RefResolver:DeprecationWarning", "ignore::fivesigma.errors.SmallSampleWarning"
)


class Seen:
    """What was drawn, by the text of the legend."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.total: dict[str, Any] = {}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    out, real = Seen(), Album.stack

    def stack(self: Album, edges: Any, yields: Any, signal: Any, **more: Any) -> Any:
        key = f"{more['text']} {more['axis']}"
        out.data[key], out.total[key] = more["data"], sum(yields.values())
        return real(self, edges, yields, signal, **more)

    monkeypatch.setattr(Album, "stack", stack)
    return out


def test_categories_have_their_numbers_and_a_scale_on_which_the_purest_is_seen(tmp_path: Path) -> None:
    edges, yields = np.arange(4.0), {"Z": np.array([4000.0, 300.0, 9.0]), "H": np.array([5.0, 4.0, 3.0])}
    options: dict[str, Any] = {"error": np.ones(3), "data": None, "text": "SR"}
    (ax,) = Album(tmp_path / "a", "").stack(edges, yields, ["H"], axis="category of the score", **options).axes
    assert ax.get_yscale() == "log"
    assert ax.get_ylim()[0] < 9.0
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1", "2"]
    (ax,) = Album(tmp_path / "b", "").stack(edges, yields, ["H"], axis="m", **options).axes
    assert ax.get_yscale() == "linear"


def test_figures_of_a_blinded_analysis(small: Small, seen: Seen, tmp_path: Path) -> None:
    given = copy.deepcopy(small.config)
    low, high = (float(edge) for edge in small.record["categorise"]["edges"]["Signal_region"][:2])
    given["Fivesigma"]["Figures"] = {"Label": "ATLAS Internal", "BlindAbove": high}
    said: list[str] = []
    record = analyse(given, tmp_path / "out", n_jobs=1, say=said.append)
    names = {path.stem for path in (tmp_path / "out" / "figures").iterdir()}
    assert {"Signal_region_prefit", "Control_region_postfit", "pulls", "overtraining", "importance"} <= names
    assert {"Signal_region_feature_x_prefit", "Signal_region_feature_pt_postfit"} <= names
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("data:image/png;base64") == len(names) - 1  # the page draws the importance itself
    # The first category is below the score from which on data are hidden, and holds the data of that score.
    shown = seen.data["Signal_region, before the fit category of the score"]
    data = branches("data", 600)
    assert np.isnan(shown[1])
    assert 0 < shown[0] < (data["lep_charge"] > 0).sum()
    low_scores = f"Signal_region, score < {high:g}, before the fit x"
    assert seen.data[low_scores].sum() > 0.95 * shown[0]  # the figure leaves out the tails
    assert seen.total[low_scores].sum() < 0.999 * (75.2 + 721.3)
    control = seen.data["Control_region, after the fit jet_pt"]
    rows = data["lep_charge"] < 0
    np.testing.assert_array_equal(control, np.histogram(data["jet_pt"][rows], [30, 60, 100, 200, 600])[0])
    assert any(note.startswith("overtraining: area under the ROC curve") for note in record["report"]["notes"])
    assert any("overtraining: area" in line for line in said)
    assert low < high


def test_a_shifted_fit_that_fails_costs_one_parameter(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cabinetry = pytest.importorskip("cabinetry")
    workspace = json.loads((small.out / "workspace.json").read_text())
    for channel, observed in zip(workspace["channels"], workspace["observations"], strict=True):
        observed["data"] = np.sum([sample["data"] for sample in channel["samples"]], axis=0).tolist()
        for sample in channel["samples"]:  # errors of the simulation are many
            sample["modifiers"] = [m for m in sample["modifiers"] if m["type"] != "staterror"]
    with listening():
        ranked = cabinetry.fit.ranking(*cabinetry.model_utils.model_and_data(workspace))
    fit = cabinetry.fit.fit

    def failing(model: Any, data: Any, *, fix_pars: Any = None, **options: Any) -> Any:
        if fix_pars is not None and fix_pars[model.config.par_names.index("Modeling")]:
            raise RuntimeError("it failed")
        return fit(model, data, fix_pars=fix_pars, **options)

    monkeypatch.setattr(cabinetry.fit, "fit", failing)
    album = Album(tmp_path / "a", "")
    notes = draw_fit(album, workspace, workspace, channels={}, signal=[])
    assert notes == ["'Modeling' is not ranked: a fit with it shifted failed (RuntimeError: it failed)"]
    found = {row["parameter"]: row["postfit_up"] for row in album.impacts}
    theirs = dict(zip(ranked.labels, ranked.postfit_up, strict=True))
    assert theirs.pop("Modeling")
    assert found == pytest.approx(theirs)
    assert (small.out / "impacts.csv").read_text().startswith("parameter,prefit_up")  # also without figures


def test_nothing_of_a_blinded_region_is_drawn_unless_asked_for(small: Small, seen: Seen, tmp_path: Path) -> None:
    given = copy.deepcopy(small.config)
    given["Fivesigma"] |= {"Figures": True, "Features": ["x"]}
    analyse(given, tmp_path / "out", n_jobs=1, say=None)
    assert np.isnan(seen.data["Signal_region, before the fit category of the score"]).all()
    features = [key for key in seen.data if key.endswith(" x")]
    assert len(features) == 2
    assert all(seen.data.pop(key) is None for key in features)
    again = analyse(given, tmp_path / "out", n_jobs=1, say=None, unblind=True)
    assert not np.isnan(seen.data["Signal_region, before the fit category of the score"]).any()
    rows = branches("data", 600)["lep_charge"] > 0
    assert 0.95 * rows.sum() < seen.data["Signal_region, before the fit x"].sum() <= rows.sum()
    assert not again.steps["train"].ran
    assert seen.data["Signal_region, in categories, after the fit x"].sum() < rows.sum() / 2


def test_features_after_the_fit_have_its_factors_in_the_categories_alone(
    small: Small, seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up = {"Signal": np.array([0.0, 2.0]), "Background": np.array([0.0, 2.0])}, np.array([0.1, 0.1])
    monkeypatch.setattr(figures, "_after_fit", lambda *_: made_up)
    given = copy.deepcopy(small.config)
    # Events below the first edge and from the last one on are in no category.
    given["Fivesigma"] |= {"Figures": True, "Features": ["x"], "Categories": {"Edges": [0.3, 0.5, 0.7]}}
    analyse(given, tmp_path / "out", n_jobs=1, say=None)
    low, high = seen.total["Signal_region, before the fit category of the score"]
    after = seen.total["Signal_region, in categories, after the fit x"].sum()
    assert 0.95 * 2 * high < after <= 2 * high  # a share of the events is beyond the figure
    assert low > 0
