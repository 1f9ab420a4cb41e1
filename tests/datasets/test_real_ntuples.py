"""Files that experiments made: what is read is what awkward alone gives."""

from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest

from fivesigma import InputError, load_events
from fivesigma.datasets import column_names

uproot = pytest.importorskip("uproot")
FOLDER = Path(__file__).parents[3] / "shared" / "data" / "ntuples"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the files are not there")
NANO, HZZ, ZMUMU = (
    FOLDER / f"{name}.root" for name in ("nanoAOD_2015_CMS_Open_Data_ttbar", "uproot-HZZ", "uproot-Zmumu")
)
PHYSLITE = FOLDER / "uproot-physlite-rntuple_v1-0-0-0.root"
PLAIN: dict[str, Any] = {"label": None, "weight": None}


def first(column: Any) -> Any:
    return ak.to_numpy(ak.fill_none(ak.firsts(column), np.nan)).astype(np.float32)


def test_nanoaod_has_the_features_of_awkward() -> None:
    features = ["MET_pt", "Jet_pt[0]", "HT = Sum$(Jet_pt * (abs(Jet_eta) < 2.4))", "tight = Sum$((Jet_jetId & 4) > 0)"]
    features += ["jet = Jet_pt[Muon_jetIdx[0]]", "dphi = abs(deltaPhi(MET_phi, Jet_phi[0]))"]
    events = load_events(NANO, tree="Events;1", features=features, weight="genWeight", label=None, keep="event")
    with uproot.open(NANO) as file:
        jets = [f"Jet_{name}" for name in ("pt", "eta", "phi", "jetId")]
        raw = file["Events"].arrays(["MET_pt", "genWeight", "event", "Muon_jetIdx", *jets])
    assert events.feature_names == ("MET_pt", "Jet_pt_0", "HT", "tight", "jet", "dphi")
    np.testing.assert_array_equal(events.column("MET_pt"), raw["MET_pt"])
    np.testing.assert_array_equal(events.column("Jet_pt_0"), first(raw["Jet_pt"]))
    central = raw["Jet_pt"][abs(raw["Jet_eta"]) < 2.4]
    np.testing.assert_allclose(events.column("HT"), ak.sum(ak.values_astype(central, np.float64), axis=1), rtol=1e-6)
    np.testing.assert_array_equal(events.column("tight"), ak.sum((raw["Jet_jetId"] & 4) > 0, axis=1))
    for k in range(len(raw)):
        at = raw["Muon_jetIdx"][k][0] if len(raw["Muon_jetIdx"][k]) else -1
        expected = raw["Jet_pt"][k][at] if 0 <= at < len(raw["Jet_pt"][k]) else np.nan
        np.testing.assert_array_equal(events.column("jet")[k], np.float32(expected))
    np.testing.assert_array_equal(events.kept["event"], raw["event"])
    np.testing.assert_allclose(events.weight, raw["genWeight"])
    assert np.nanmax(events.column("dphi")) <= np.float32(np.pi)


def test_default_features_have_no_truth_and_no_bookkeeping() -> None:
    nano = load_events(NANO, tree="Events", **PLAIN)
    bad = ("gen", "lhe", "htxs", "flag", "hlt", "pileup", "run", "event", "lumi")
    assert not [n for n in nano.feature_names if n.lower().startswith(bad) or "gen" in n.lower()]
    assert not [n for n in nano.feature_names if n.endswith(("Up", "Down")) or "UpDelta" in n]
    assert {"MET_pt", "nJet", "PV_npvs"} <= set(nano.feature_names)
    assert load_events(HZZ, **PLAIN).feature_names == (
        *("NJet", "NMuon", "NElectron", "NPhoton", "MET_px", "MET_py", "NPrimaryVertices"),
    )
    zmumu = load_events(ZMUMU, **PLAIN)
    assert not {"Run", "Event"} & set(zmumu.feature_names)
    assert any(note.endswith("not by their name or use: Run, Event.") for note in zmumu.notes)


def test_physlite_as_an_rntuple() -> None:
    names = column_names(PHYSLITE, tree="EventData")
    assert "AnalysisJetsAuxDyn:pt" in names
    assert "xTrigDecisionAux:.smk" not in names  # a part of a field
    keep = ["j1 = `AnalysisJetsAuxDyn:pt`[0]", "n = count(`AnalysisJetsAuxDyn:pt`)"]
    events = load_events(PHYSLITE, tree="EventData", keep=keep, **PLAIN)
    with uproot.open(PHYSLITE) as file:
        jets = file["EventData"]["AnalysisJetsAuxDyn:pt"].array()
    np.testing.assert_array_equal(events.kept["j1"].astype(np.float32), first(jets))
    np.testing.assert_array_equal(events.kept["n"], ak.num(jets))
    assert not [n for n in events.feature_names if "truth" in n.lower() or n.startswith(("EventInfo", "xTrig"))]
    with pytest.raises(InputError, match=r"did you mean 'AnalysisJetsAuxDyn:pt'.*stands in backticks"):
        load_events(PHYSLITE, tree="EventData", features=["j1 = AnalysisJetsAuxDyn.pt[0]"], **PLAIN)
