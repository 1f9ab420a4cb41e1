"""Ntuples of cabinetry's kind: one file with several trees, flat branches in double precision, and their analysis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import AnyArray

N = 1500
MODEL = {"n_trees": 8, "params": {"max_depth": 3, "learning_rate": 0.3}, "update_every": 4}


def branches(kind: str, n: int = N, scale: float = 1.0) -> dict[str, AnyArray]:
    """Flat branches: x tells signal from background, jet_pt moves with the scale."""
    rng = np.random.default_rng({"signal": 1, "background": 2, "data": 3}[kind])
    x = rng.normal(1.5 if kind == "signal" else 0.0, 1.0, n)
    jet = 30.0 + rng.exponential(60.0, n)
    return {
        "x": x * scale,
        "jet_pt": scale * jet,
        "jet_pt_up": 1.1 * jet,
        "lep_charge": rng.choice([-1, 1], n),
        "n_jets": rng.integers(1, 6, n).astype(np.int32),
        "weight": rng.uniform(0.5, 1.5, n) * (0.1 if kind == "signal" else 1.0),
        "eventNumber": np.arange(n) + 10_000_000_000_000_000,
    }


def write(path: Path, trees: dict[str, dict[str, AnyArray]], **histograms: float) -> Path:
    with need("uproot").recreate(path) as file:
        for name, columns in trees.items():
            file.mktree(name, {key: values.dtype for key, values in columns.items()})
            file[name].extend(columns)
        for name, total in histograms.items():
            file[name] = np.histogram([0.5], bins=1, range=(0, 1), weights=[total])
    return path


def make(path: Path) -> Path:
    """One file with the trees of all samples."""
    data = branches("data", 600)
    return write(
        path,
        {
            "signal": branches("signal"),
            "background": branches("background"),
            "background_up": branches("background", N - 200, 1.05),
            "pseudodata": {name: values for name, values in data.items() if name != "weight"},
        },
        h_sumw=2000.0,
    )


def config(path: Path) -> dict[str, Any]:
    """Its analysis, in cabinetry's manner."""
    return {
        "General": {
            "Measurement": "minimal",
            "POI": "Signal_norm",
            "InputPath": str(path),
            "HistogramFolder": "histograms/",
        },
        "Regions": [
            {"Name": "Signal_region", "Filter": "lep_charge > 0"},
            {
                "Name": "Control_region",
                "Variable": "jet_pt",
                "Binning": [30, 60, 100, 200, 600],
                "Filter": "lep_charge < 0",
            },
        ],
        "Samples": [
            {"Name": "Data", "Tree": "pseudodata", "Data": True},
            {"Name": "Signal", "Tree": "signal", "Weight": "weight"},
            {"Name": "Background", "Tree": "background", "Weight": "weight"},
        ],
        "Systematics": [
            {
                "Name": "Luminosity",
                "Type": "Normalization",
                "Up": {"Normalization": 0.05},
                "Down": {"Normalization": -0.05},
            },
            {
                "Name": "Modeling",
                "Type": "NormPlusShape",
                "Up": {"Tree": "background_up"},
                "Down": {"Symmetrize": True},
                "Samples": "Background",
            },
            {
                "Name": "Weighting",
                "Type": "NormPlusShape",
                "Up": {"Weight": "1.2*weight"},
                "Down": {"Weight": "0.7*weight"},
                "Samples": ["Background"],
            },
        ],
        "NormFactors": [{"Name": "Signal_norm", "Samples": "Signal", "Nominal": 1, "Bounds": [0, 10]}],
        "Fivesigma": {
            "Region": "Signal_region",
            "Features": ["x", "pt = jet_pt"],
            "EventNumber": "eventNumber",
            "Folds": 2,
            "Model": "grown",
            "ModelOptions": dict(MODEL),
            "Figures": False,
            "Categories": {"Number": 2, "MinEffective": 10},
        },
    }
