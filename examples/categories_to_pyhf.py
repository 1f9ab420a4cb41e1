"""From simulated events to a fit: train, categorise, export, fit with pyhf, plot.

Run it with ``python examples/categories_to_pyhf.py FOLDER``; it writes ``workspace.json`` and ``categories.png`` there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pyhf
from sklearn.ensemble import HistGradientBoostingClassifier

from fivesigma.categories import categorise
from fivesigma.categories.workspace import discovery_significance, to_pyhf, write_workspace
from fivesigma.datasets import Events, from_arrays
from fivesigma.likelihood.shifts import Varied, yield_shifts
from fivesigma.yields import balanced_class_weights, learner_weights

mpl.use("Agg")

# Process: expected events, mean and width of the mass, mean of the transverse momentum.
PROCESSES = {"H": (200.0, 125.0, 12.0, 60.0), "Z": (20_000.0, 91.0, 9.0, 35.0), "ttbar": (4_000.0, 130.0, 60.0, 45.0)}


def simulate(n: int, seed: int) -> Events:
    """Simulate `n` events of each process: mass, transverse momentum and one variable without information."""
    rng = np.random.default_rng(seed)
    parts = []
    for name, (events, mean, width, momentum) in PROCESSES.items():
        X = np.column_stack([rng.normal(mean, width, n), rng.gamma(2.0, momentum / 2, n), rng.normal(size=n)])
        parts.append((X, np.full(n, int(name == "H")), np.full(n, events / n), np.full(n, name)))
    X, y, weight, process = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return from_arrays(X, y, weight, feature_names=("mass", "pt", "noise"), process=process)


def main(folder: Path, n: int = 40_000) -> dict[str, Any]:
    """Run the whole chain and return what it found; the folder is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    # Three sets of events for three uses: fitting the model, choosing the edges, quoting. Each is scaled to the yields.
    rest, test = simulate(n, seed=1).split(1 / 3, random_state=0)
    fit, tune = rest.split(1 / 2, random_state=0)
    signal = fit.is_signal
    model = HistGradientBoostingClassifier(random_state=0, max_iter=60)
    weights = learner_weights(fit.weight, signal, balanced_class_weights(fit.weight, signal))
    model.fit(fit.X, fit.y, sample_weight=weights)

    def score(X: np.ndarray) -> np.ndarray:
        probability: np.ndarray = model.predict_proba(X)[:, 1]
        return probability

    # As many categories as the statistics of the tuning events support, each background known to 10 % or better.
    chosen = categorise(score(tune.X), tune.y, tune.weight, "auto", max_relative_mc_error=0.1, rule="model")
    quoted = chosen.evaluate(score(test.X), test.y, test.weight, process=test.process)
    print(quoted)
    print("one standard deviation of simulation statistics:", quoted.interval(n_boot=100).significance)

    # An energy scale of 1 % moves the mass, and the ttbar cross-section is known to 6 %.
    scale = np.array([1.01, 1.0, 1.0], dtype=np.float32)
    heavier = test.weight * np.where(test.process == "ttbar", 1.06, 1.0)
    systematics = {
        "energy_scale": (Varied(score=score(test.X * scale)), Varied(score=score(test.X / scale))),
        "ttbar_cross_section": (Varied(weight=heavier), None),
    }
    shifts = yield_shifts(quoted.edges, score(test.X), test.y, test.weight, systematics, process=test.process)
    print(shifts)

    workspace = to_pyhf(quoted, shifts)
    path = write_workspace(workspace, folder / "workspace.json")
    workspace = pyhf.Workspace(workspace)
    fitted = pyhf.infer.mle.fit(workspace.data(workspace.model()), workspace.model())
    signal_strength = float(fitted[workspace.model().config.poi_index])
    with_all = discovery_significance(workspace)
    print(f"pyhf: signal strength {signal_strength:.3f}, expected significance {with_all:.3f}")

    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    quoted.plot(figure.subplots())
    figure.savefig(folder / "categories.png")
    return {"quoted": quoted, "shifts": shifts, "mu": signal_strength, "significance": with_all, "workspace": path}


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "example"))
