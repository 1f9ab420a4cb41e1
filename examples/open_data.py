"""Real files of others, read as they are: H -> ZZ over Z -> mumu, with systematics, categories and a workspace.

    python examples/open_data.py FOLDER

FOLDER holds ``uproot-HZZ.root`` (simulated H -> ZZ events of a CMS tutorial, lists of muons) and ``uproot-Zmumu.root``
(real collisions with two muons, one column for each), from the test data of Scikit-HEP. They have few events and no
common normalisation, so that the numbers show the way and are no result.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import uproot

import fivesigma
from fivesigma import Events, Normalisation, ScoredEvents, Varied
from fivesigma.datasets import from_arrays

SIGNAL, BACKGROUND = 40.0, 2_000.0  # expected events, chosen for the example
Z_MUONS = [f"{part}{k}" for k in (1, 2) for part in ("E", "px", "py", "pz")]
FEATURES = ("mass", "pt1", "pt2", "pt_pair", "deta")


def features(first: Any, second: Any, scale: float) -> Any:
    """Mass and momenta of two muons, each given as (E, px, py, pz), after a change of the momentum scale."""
    energy, x, y, z = (scale * (a + b) for a, b in zip(first, second, strict=True))
    pt = [scale * np.hypot(px, py) for _, px, py, _ in (first, second)]
    eta = [np.arcsinh(pz / np.hypot(px, py)) for _, px, py, pz in (first, second)]
    mass = np.sqrt(np.maximum(energy**2 - x**2 - y**2 - z**2, 0))
    return np.column_stack([mass, *pt, np.hypot(x, y), np.abs(eta[0] - eta[1])])


def read(folder: Path, scale: float = 1.0) -> Events:
    """Both files as one table of events with the features above."""
    higgs = uproot.open({folder / "uproot-HZZ.root": "events"}).arrays()
    higgs = higgs[higgs.NMuon >= 2]
    higgs = higgs[higgs.Muon_Charge[:, 0] * higgs.Muon_Charge[:, 1] < 0]
    muons = [[np.asarray(higgs[f"Muon_{part}"][:, k]) for part in ("E", "Px", "Py", "Pz")] for k in (0, 1)]
    z = uproot.open({folder / "uproot-Zmumu.root": "events"}).arrays(["Q1", "Q2", *Z_MUONS], library="np")
    opposite = z["Q1"] * z["Q2"] < 0
    pairs = [[z[f"{part}{k}"][opposite] for part in ("E", "px", "py", "pz")] for k in (1, 2)]

    weight = np.asarray(higgs.EventWeight, dtype=float)
    y = np.repeat([1, 0], [len(higgs), opposite.sum()])
    return from_arrays(
        np.concatenate([features(*muons, scale), features(*pairs, scale)]),
        y,
        np.concatenate([SIGNAL * weight / weight.sum(), np.full(opposite.sum(), BACKGROUND / opposite.sum())]),
        feature_names=FEATURES,
        process=np.where(y == 1, "HZZ", "Z"),
        keep={"number": np.arange(y.size)},
    )


def main(folder: Path) -> dict[str, Any]:
    """Train out of fold, choose categories that know the systematics, and ask pyhf for the significance."""
    events = read(folder)
    # Folds by number: nominal and varied events are scored by the fit that did not see them.
    model = fivesigma.AutoClassifier(cv=5, by="number", fast=True, n_trees=60, random_state=0).fit(events)
    scored = ScoredEvents.of(model, events)
    up, down = (Varied(score=model.predict_proba(read(folder, scale))[:, 1]) for scale in (1.01, 0.99))
    systematics = {"muon momentum": (up, down), "Z yield": Normalisation("Z", 0.05)}
    found = fivesigma.categorise(scored, n_categories=4, systematics=systematics)
    shifts = fivesigma.yield_shifts(found.edges, scored, systematics=systematics)
    return {
        "events": events,
        "categories": found,
        "waterfall": shifts.waterfall(),
        "pyhf": fivesigma.discovery_significance(fivesigma.to_pyhf(found, shifts)),
    }


if __name__ == "__main__":
    result = main(Path(sys.argv[1]))
    print(result["events"], result["categories"], sep="\n\n")
    for name, value in result["waterfall"]:
        print(f"{value:8.3f}  {name}")
    print(f"{result['pyhf']:8.3f}  as pyhf finds it")
