"""Scores, cuts, edges and significances of everything public, on six seeds, for a comparison bit by bit.

``python -m benchmarks.robustness.golden write FILE`` before a change that must not move any number, and ``compare
FILE`` after it; ``--no-analyse`` leaves the analyses from ntuples out. Arrays are kept as digests with their sum,
numbers as hexadecimal floats with ten digits.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fivesigma as fs
from fivesigma.datasets import Events, make_htautau

SEEDS = range(6)
RULES = ("model", "plateau", "peak", "smooth")
CATEGORY_RULES = ("model", "peak")
Found = Iterator[tuple[str, str]]


def digest(values: Any) -> str:
    """Hash, type, shape and sum of an array."""
    array = np.ascontiguousarray(values)
    found = hashlib.sha256(array.tobytes()).hexdigest()[:16]
    return f"{found} {array.dtype}{array.shape} {float(np.nansum(array)):.12g}"


def exact(*values: float | None) -> str:
    """Numbers to the last bit, and so that they can be read."""
    return " ".join("none" if v is None else f"{float(v).hex()} {float(v):.10g}" for v in values)


def models(seed: int) -> dict[str, Any]:
    """Every kind of estimator, small."""
    shared: dict[str, Any] = {"b_reg": 10.0, "random_state": seed, "n_jobs": 1}
    linear = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression())
    grown = fs.GrownCascadeClassifier(n_trees=15, **shared)
    found = {
        "cascade": fs.CascadeClassifier(linear, max_rounds=4, extra_rounds=2, **shared),
        "cascade-xgb": fs.CascadeClassifier(max_rounds=2, extra_rounds=1, **shared),
        "grown": grown,
        "grown-cv": fs.GrownCascadeClassifier(n_trees=10, cv=3, **shared),
        "grown-plain": fs.GrownCascadeClassifier(n_trees=15, cascade=False, **shared),
        "grown-lightgbm": fs.GrownCascadeClassifier("lightgbm", n_trees=15, **shared),
        "grown-bins": fs.GrownCascadeClassifier(n_trees=15, memory="bins", **shared),
        "decomposed": fs.DecomposedClassifier(linear, **shared),
        "pool": fs.CascadePool([("g", grown), ("l", fs.CascadeClassifier(linear, max_rounds=2, **shared))], **shared),
        "auto": fs.AutoClassifier(n_trees=10, fast=True, cv=3, **shared),
    }
    return found if seed > 1 else found | {"auto-full": fs.AutoClassifier(n_trees=8, cv=3, net=False, **shared)}


def of_models(seed: int, train: Events, test: Events) -> Found:
    """Scores, cut and significance of each estimator."""
    for name, model in models(seed).items():
        model.fit(train)
        yield f"{name}/proba", digest(model.predict_proba(test.X)[:, 1])
        yield f"{name}/cut", exact(model.cut_)
        yield f"{name}/Z", exact(model.significance(test))


def systematics_of(score: Any, test: Events) -> dict[str, Any]:
    """A scale, the normalisation of one process, and a slope."""
    weight = test.weight
    return {
        "scale": (fs.Varied(score=score + 0.02, weight=weight * 1.01), fs.Varied(score=score - 0.02)),
        "z": (fs.Varied(weight=np.where(np.asarray(test.process) == "ztautau", 1.05 * weight, weight)), None),
        "slope": (fs.Varied(weight=weight * (1 + 0.1 * (score - 0.5))), None),
    }


def of_cuts(score: Any, test: Events, systematics: dict[str, Any]) -> Found:
    """`scan` by every rule and utility, without and with systematics."""
    events = (score, test.y, test.weight)
    for rule in RULES:
        best = fs.scan(*events, utility=fs.AMS2(b_reg=10), rule=rule)
        yield f"scan/{rule}", exact(best.cut, best.fraction, best.significance, best.s, best.b)
        if rule in ("model", "plateau"):
            yield f"scan/{rule}/curve", digest(best.curve.significance)
            yield f"scan/{rule}/interval", " ".join(map(str, best.interval(n_boot=50)))
    uncertain = (fs.OnOff(3.0), fs.GaussianBackground(20.0), fs.RelativeBackground(0.1))
    for utility in (fs.AMS3(), fs.SOverRootSB(), *uncertain):
        best = fs.scan(*events, utility=utility)
        yield f"scan/{utility}", exact(best.cut, best.significance)
    for rule in RULES:
        best = fs.scan(*events, systematics=systematics, rule=rule)
        yield f"scan-systematics/{rule}", exact(best.cut, best.significance)


def of_categories(score: Any, test: Events, systematics: dict[str, Any]) -> Found:
    """`categorise` for several numbers of categories, and what moves in them."""
    events = (score, test.y, test.weight)
    for k in (1, 2, 3, 5, 8):
        for rule in CATEGORY_RULES:
            found = fs.categorise(*events, k, rule=rule)
            yield f"categorise/{k}/{rule}", exact(*found.edges, found.significance, found.bound, found.gap)
            options: dict[str, Any] = {"systematics": systematics, "process": test.process, "mc_statistics": False}
            found = fs.categorise(*events, k, rule=rule, **options)
            yield f"categorise-systematics/{k}/{rule}", exact(*found.edges, found.significance)
            yield f"categorise-systematics/{k}/{rule}/bound", exact(found.bound, found.gap)
    found = fs.categorise(*events, "auto", rule="peak")
    yield "categorise/auto", exact(*found.edges, found.significance)
    found = fs.categorise(*events, 3, rule="peak", utility=fs.RelativeBackground(0.1), mc_statistics=False)
    yield "categorise/relative", exact(*found.edges, found.significance)
    shifts = fs.yield_shifts(found.edges, *events, systematics, process=test.process)
    yield "yield_shifts", " ".join(f"{name} {exact(value)}" for name, value in shifts.waterfall())


def of_several_signals(seed: int) -> Found:
    """`categorise_scores` of three classes."""
    rng, n = np.random.default_rng(seed), 4000
    classes = rng.integers(0, 3, n)
    odds = np.exp(rng.normal(0, 1, (n, 3)) + 1.5 * np.eye(3)[classes])
    scores = odds / odds.sum(axis=1, keepdims=True)
    names, weight = np.array(["ggF", "VBF", "bkg"])[classes], np.array([0.05, 0.02, 5.0])[classes]
    for k in (3, 6):
        processes = ["ggF", "VBF", "bkg"]
        found = fs.categorise_scores(scores, names, weight, k, signals=processes[:2], processes=processes)
        yield f"several/{k}", f"{digest(found.assign(scores))} {exact(*found.z.values())}"


def branches(kind: str, seed: int, n: int = 1500, scale: float = 1.0) -> dict[str, Any]:
    """A tree of toy events."""
    rng = np.random.default_rng([{"signal": 1, "background": 2, "data": 3}[kind], seed])
    x = rng.normal(1.5 if kind == "signal" else 0.0, 1.0, n)
    jet = 30.0 + rng.exponential(60.0, n)
    found = {
        "x": x * scale,
        "jet_pt": scale * jet,
        "lep_charge": rng.choice([-1, 1], n),
        "n_jets": rng.integers(1, 6, n).astype(np.int32),
        "weight": rng.uniform(0.5, 1.5, n) * (0.1 if kind == "signal" else 1.0),
        "eventNumber": np.arange(n) + 10_000_000_000_000_000,
    }
    return {name: values for name, values in found.items() if kind != "data" or name != "weight"}


def configuration(path: Path) -> dict[str, Any]:
    """An analysis of two regions with two systematics."""
    size = {"Up": {"Normalization": 0.05}, "Down": {"Normalization": -0.05}}
    binning = {"Variable": "jet_pt", "Binning": [30, 60, 100, 200, 600]}
    options = {"n_trees": 8, "params": {"max_depth": 3, "learning_rate": 0.3}, "update_every": 4}
    return {
        "General": {"Measurement": "minimal", "POI": "mu", "InputPath": str(path), "HistogramFolder": "histograms/"},
        "Regions": [
            {"Name": "Signal_region", "Filter": "lep_charge > 0"},
            {"Name": "Control_region", "Filter": "lep_charge < 0", **binning},
        ],
        "Samples": [
            {"Name": "Data", "Tree": "pseudodata", "Data": True},
            {"Name": "Signal", "Tree": "signal", "Weight": "weight"},
            {"Name": "Background", "Tree": "background", "Weight": "weight"},
        ],
        "Systematics": [
            {"Name": "Luminosity", "Type": "Normalization", **size},
            {
                "Name": "Modeling",
                "Type": "NormPlusShape",
                "Up": {"Tree": "background_up"},
                "Down": {"Symmetrize": True},
                "Samples": "Background",
            },
        ],
        "NormFactors": [{"Name": "mu", "Samples": "Signal", "Nominal": 1, "Bounds": [0, 10]}],
        "Fivesigma": {
            "Region": "Signal_region",
            "Features": ["x", "jet_pt", "n_jets"],
            "EventNumber": "eventNumber",
            "Folds": 2,
            "Categories": {"Number": 3},
            "Model": "grown",
            "ModelOptions": options,
        },
    }


def of_analysis(seed: int) -> Found:
    """Templates and workspace of an analysis from ntuples."""
    uproot: Any = importlib.import_module("uproot")
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "n.root", Path(folder) / "out"
        trees = {
            "signal": branches("signal", seed),
            "background": branches("background", seed),
            "background_up": branches("background", seed, scale=1.05),
            "pseudodata": branches("data", seed, 600),
        }
        with uproot.recreate(path) as file:
            for name, columns in trees.items():
                file.mktree(name, {key: values.dtype for key, values in columns.items()})
                file[name].extend(columns)
        fs.analyse(configuration(path), out, n_jobs=1, say=None)
        workspace = json.loads((out / "workspace.json").read_text())
        whole = hashlib.sha256(json.dumps(workspace, sort_keys=True).encode()).hexdigest()
        yield "analyse/workspace", whole
        for channel in workspace["channels"]:
            for sample in channel["samples"]:
                yield f"analyse/{channel['name']}/{sample['name']}", digest(np.array(sample["data"]))
        yield "analyse/yields", hashlib.sha256((out / "yields.csv").read_bytes()).hexdigest()


def run(*, analyse: bool) -> dict[str, str]:
    """All results by their names."""
    out: dict[str, str] = {}
    for seed in SEEDS:
        train, test = make_htautau(3000, random_state=seed), make_htautau(6000, random_state=100 + seed)
        grown = models(seed)["grown"].fit(train)
        score = fs.ScoredEvents.of(grown, test).score
        systematics = systematics_of(score, test)
        parts = [
            of_models(seed, train, test),
            of_cuts(score, test, systematics),
            of_categories(score, test, systematics),
            of_several_signals(seed),
            *([of_analysis(seed)] if analyse else []),
        ]
        out |= {f"{seed}/{name}": value for part in parts for name, value in part}
    return out


def main() -> int:
    """Return 1 if a result differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--no-analyse", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    found = run(analyse=not asked.no_analyse)
    if asked.mode == "write":
        asked.file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return 0
    expected = json.loads(asked.file.read_text(encoding="utf-8"))
    if asked.no_analyse:
        expected = {name: value for name, value in expected.items() if "/analyse/" not in name}
    differ = [name for name in sorted(expected | found) if expected.get(name) != found.get(name)]
    for name in differ:
        print(f"{name}\n  was {expected.get(name)}\n  is  {found.get(name)}")
    print(f"{len(differ)} of {len(expected)} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
