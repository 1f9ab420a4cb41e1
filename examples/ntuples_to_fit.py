"""From ntuples to a fit: simulate ntuples as an analysis has them, then ``fivesigma.analyse``.

Run it with ``python examples/ntuples_to_fit.py [FOLDER]``; it writes ntuples, ``vh.yml`` and the results in ``out``.
The same with the command line: ``cd FOLDER && fivesigma analyse vh.yml -o out``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import awkward as ak
import cabinetry
import numpy as np
import pyhf
import uproot

import fivesigma

LUMINOSITY = 140.0  # 1/fb
# Process: cross section in pb, mean and width of mBB, scale of pTV, mean number of further jets.
PROCESSES = {
    "VH": (0.0022, 122.0, 14.0, 110.0, 1.6),
    "ttbar": (0.05, 140.0, 60.0, 80.0, 3.2),
    "Zjets": (0.045, 95.0, 40.0, 90.0, 1.5),
    "Wjets": (0.03, 105.0, 50.0, 70.0, 1.4),
    "diboson": (0.008, 92.0, 15.0, 95.0, 1.5),
}
FILES = {"VH": ["vh_1", "vh_2"], "ttbar": ["tt_a", "tt_b"], "Zjets": ["zjets"], "Wjets": ["wjets"], "diboson": ["vv"]}
CONFIG = """\
General: {Measurement: "vh", POI: "mu", InputPath: "ntuples/{SamplePath}", HistogramFolder: "histograms/"}
Samples:
  - {Name: "VH", Tree: "Nominal", SamplePath: "vh_*.root", Weight: "mcWeight*puWeight*btagSF"}
  - {Name: "ttbar", Tree: "Nominal", SamplePath: ["tt_a.root", "tt_b.root"], Weight: "mcWeight*puWeight*btagSF"}
  - {Name: "Zjets", Tree: "Nominal", SamplePath: "zjets.root", Weight: "mcWeight*puWeight*btagSF"}
  - {Name: "Wjets", Tree: "Nominal", SamplePath: "wjets.root", Weight: "mcWeight*puWeight*btagSF"}
  - {Name: "diboson", Tree: "Nominal", SamplePath: "vv.root", Weight: "mcWeight*puWeight*btagSF"}
  - {Name: "Data", Tree: "Nominal", SamplePath: "data.root", Data: True}
Regions:
  - {Name: "SR", Filter: "nJet <= 3"}
  - {Name: "CR_top", Filter: "nJet >= 4", Variable: "mBB", Binning: [0, 100, 200, 500]}
Systematics:
  - {Name: "JES", Type: "NormPlusShape", Up: {Tree: "JES_up"}, Down: {Tree: "JES_down"}}
  - Name: "btag"
    Type: "NormPlusShape"
    Up: {Weight: "mcWeight*puWeight*btagSF_up"}
    Down: {Weight: "mcWeight*puWeight*btagSF_down"}
    Samples: ["ttbar", "Zjets"]
  - {Name: "ttbar_norm", Type: "Normalization", Up: {Normalization: 0.06}, Down: {Normalization: -0.06}, Samples: ttbar}
  - {Name: "Zjets_norm", Type: "Normalization", Up: {Normalization: 0.10}, Down: {Normalization: -0.10}, Samples: Zjets}
NormFactors: [{Name: "mu", Samples: "VH", Nominal: 1, Bounds: [0, 10]}]
Fivesigma:
  Region: "SR"
  Features: ["mBB", "pTV", "j1 = jet_pt[0]", "HT = sum(jet_pt)", "dphi = abs(phi1 - phi2)"]
  Preselection: "passSel && jet_pt[0] > 45"
  EventNumber: "eventNumber"
  Folds: 3
  Luminosity: 140.0
  CrossSections:
    VH: {CrossSection: 2.2e-3, SumOfWeights: "h_sumw"}
    ttbar: {CrossSection: 0.05, SumOfWeights: "h_sumw"}
    Zjets: {CrossSection: 0.045, SumOfWeights: "h_sumw"}
    Wjets: {CrossSection: 0.03, SumOfWeights: "h_sumw"}
    diboson: {CrossSection: 0.008, SumOfWeights: "h_sumw"}
  Model: grown
  ModelOptions: {n_trees: 60, params: {max_depth: 4, learning_rate: 0.1}, update_every: 5}
  Categories: {Number: 4, MinEffective: 25}
"""


def simulate(process: str, n: int, seed: int) -> dict[str, Any]:
    """Simulate `n` events: masses, momenta, jagged jets, weights and flags."""
    rng = np.random.default_rng([list(PROCESSES).index(process), seed])
    _, mass, width, momentum, n_jets = PROCESSES[process]
    jets = 1 + rng.poisson(n_jets, n)
    sf = rng.normal(1.0, 0.03, n)
    return {
        "mBB": np.abs(rng.normal(mass, width, n)).astype(np.float32),
        "pTV": (40.0 + rng.exponential(momentum, n)).astype(np.float32),
        "phi1": rng.uniform(-np.pi, np.pi, n).astype(np.float32),
        "phi2": rng.uniform(-np.pi, np.pi, n).astype(np.float32),
        "jet_pt": ak.unflatten(30.0 + rng.exponential(50.0, int(jets.sum())), jets),
        "mcWeight": rng.uniform(0.5, 1.5, n).astype(np.float32),
        "puWeight": rng.uniform(0.8, 1.2, n).astype(np.float32),
        "btagSF": sf,
        "btagSF_up": sf * np.where(jets > 3, 1.05, 1.02),
        "btagSF_down": sf * np.where(jets > 3, 0.95, 0.98),
        "passSel": rng.random(n) < 0.9,
        "eventNumber": rng.permutation(n) + n * (1 + seed),
    }


def reconstructed(events: dict[str, Any], scale: float) -> dict[str, Any]:
    """Shift the energy of the jets and keep what passes the ntuples' own selection: other events for each scale."""
    out = dict(events)
    jets = scale * events["jet_pt"]
    out["jet_pt"] = jets[jets > 35.0]
    out["mBB"] = (scale * events["mBB"]).astype(np.float32)
    out["nJet"] = np.asarray(ak.num(out["jet_pt"]), dtype=np.int32)
    kept = out["nJet"] >= 1
    return {name: values[kept] for name, values in out.items()}


def write(path: Path, trees: dict[str, dict[str, Any]], sum_of_weights: float, *, rntuple: bool = False) -> None:
    """Write trees, and the histogram of the sum of weights of all generated events."""
    with uproot.recreate(path) as file:
        for name, branches in trees.items():
            if rntuple:
                file.mkrntuple(name, branches)
                continue
            kinds = {k: "var * float64" if isinstance(v, ak.Array) else v.dtype for k, v in branches.items()}
            file.mktree(name, kinds)
            file[name].extend(branches)
        file["h_sumw"] = np.histogram([0.5], bins=1, range=(0, 1), weights=[sum_of_weights])


def make_ntuples(folder: Path, n: int) -> None:
    """Write the ntuples of five processes, one of them as RNTuples, and of data."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for process, names in FILES.items():
        for part, name in enumerate(names):
            events = simulate(process, n // len(names), part)
            trees = {
                tree: reconstructed(events, scale)
                for tree, scale in (("Nominal", 1.0), ("JES_up", 1.03), ("JES_down", 0.97))
            }
            total = float((events["mcWeight"] * events["puWeight"]).sum(dtype=np.float64))
            write(folder / f"{name}.root", trees, total, rntuple=process == "Wjets")
        drawn.append(draw(process))
    data = {name: ak.concatenate([part[name] for part in drawn]) for name in drawn[0]}
    flat = {name: values if name == "jet_pt" else ak.to_numpy(values) for name, values in data.items()}
    flat["eventNumber"] = np.arange(len(flat["mBB"]))
    write(folder / "data.root", {"Nominal": reconstructed(flat, 1.0)}, 0.0)


def draw(process: str) -> dict[str, Any]:
    """Draw data of a process: as many events as the luminosity gives, each with the weight one."""
    expected = 1000.0 * LUMINOSITY * PROCESSES[process][0]
    rng = np.random.default_rng([7, list(PROCESSES).index(process)])
    events = simulate(process, int(rng.poisson(expected)), 99)
    return {name: values for name, values in events.items() if "Weight" not in name and "SF" not in name}


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder, to which the paths of the configuration are relative."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def main(folder: Path, n: int = 20_000, **options: Any) -> dict[str, Any]:
    """Run the whole chain, and fit with cabinetry and with pyhf."""
    make_ntuples(folder / "ntuples", n)
    (folder / "vh.yml").write_text(CONFIG, encoding="utf-8")
    with inside(folder):
        record = fivesigma.analyse("vh.yml", "out", **options)
    workspace = json.loads((folder / "out" / "workspace.json").read_text())
    model, data = cabinetry.model_utils.model_and_data(workspace)
    found = cabinetry.fit.fit(model, data)
    at = model.config.poi_index
    mu, error = float(found.bestfit[at]), float(found.uncertainty[at])
    by_pyhf = float(pyhf.infer.mle.fit(data, model)[at])
    print(f"cabinetry: mu = {mu:.4f} +- {error:.4f}; pyhf: mu = {by_pyhf:.4f}")
    return {"record": record, "mu": mu, "error": error, "mu_pyhf": by_pyhf}


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "example"))
