"""Width and coverage of intervals under the nuisances of the FAIR-Universe challenge, on the toy.

``python -m benchmarks.peers.fair_universe run FOLDER`` does what ``fivesigma fair-universe toy:1500000 --luminosity
0.1`` does: 10 x 100 experiments. What is trained stays in FOLDER. ``eliminate FOLDER`` then fits counts that are drawn
in four ways, to see what costs coverage. Both write to benchmarks/peers/fair_universe.json.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._types import Array
from fivesigma.estimators.profiled import ProfiledClassifier
from fivesigma.fair_universe import load
from fivesigma.fair_universe.comparison import (
    ARMS,
    Arm,
    fit_experiments,
    judge_intervals,
    make_arms,
    split_events,
    vary,
)
from fivesigma.fair_universe.strength import Templates, score_intervals
from fivesigma.likelihood.profile import interpolate
from fivesigma.likelihood.shifts import yield_shifts

RESULTS = Path(__file__).with_suffix(".json")
N_EVENTS, LUMINOSITY, SEED = 1_500_000, 0.1, 0
FEW = 0.1  # share of the events that fill templates, in the last row of `eliminate`


def save(**what: Any) -> None:
    """Add to the results."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(known | what, indent=1) + "\n")


def trained(folder: Path) -> tuple[dict[str, Arm], Any, Any, float]:
    """Models with their templates, events that filled them, events for experiments, and seconds of one core."""
    file = folder / "arms.pkl"
    if not file.exists():
        started = time.process_time()
        events = load(f"toy:{N_EVENTS}", luminosity=LUMINOSITY, random_state=SEED)
        *parts, test = split_events(events, SEED)
        train, choose, fill = (vary(part, seed=k) for k, part in enumerate(parts))
        model = ProfiledClassifier(goal="measurement", cv=2, random_state=SEED, n_jobs=1)
        arms = make_arms(train, choose, fill, model, 10)
        folder.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pickle.dumps((arms, parts[-1], test, time.process_time() - started)))
    found: tuple[dict[str, Arm], Any, Any, float] = pickle.loads(file.read_bytes())
    return found


def run(folder: Path) -> None:
    """Fit all sets."""
    arms, _, test, seconds = trained(folder)
    started = time.process_time()
    found = fit_experiments(arms, test, sets=10, experiments=100, seed=SEED, verbose=1)
    widths = {
        name: [float(np.mean(np.subtract(one[name]["high"], one[name]["low"]))) for one in found] for name in ARMS
    }
    seconds_of = {"training and templates": seconds, "experiments": time.process_time() - started}
    save(comparison=asdict(judge_intervals(arms, found, seconds_of)), widths=widths)


def eliminate(folder: Path, n: int = 1000) -> None:
    """Coverage of fits to counts that are drawn from templates: own ones, with pulls, and from other events."""
    arms, fill, test, _ = trained(folder)
    rng = np.random.default_rng(SEED)
    arm = arms["profiled"]

    def templates(events: Any) -> Templates:
        scored, moved = vary(events, seed=2).scored(arm.model)
        return Templates.of(yield_shifts(arm.edges, scored, systematics=moved))

    truth, few = templates(test), templates(fill.split(FEW, random_state=SEED)[1])
    mu = rng.uniform(0.1, 3.0, n)
    assert truth.shifts_b is not None
    theta = rng.normal(size=(n, truth.shifts_b.shape[1]))

    def expected(of: Templates, pulls: Array) -> Array:
        at, theta = mu[:, None], pulls[..., None]
        assert of.shifts_s is not None
        assert of.shifts_b is not None
        s, b = (interpolate(theta, *shifts)[0].sum(axis=1) for shifts in (of.shifts_s, of.shifts_b))
        out: Array = at * (of.s + s) + of.b + b
        return out

    own = replace(truth, variance=None)
    rows = {
        "templates of the experiments' own events, nothing moves": (own.without_nuisances(), 0 * theta),
        "the same, nuisances move": (own, theta),
        "templates of other events": (arm.templates, theta),
        "templates of a tenth of these": (few, theta),
        "the same, without the statistics of the simulation": (replace(few, variance=None), theta),
    }
    out = {}
    for name, (fitted, pulls) in rows.items():
        found = fitted.fit(rng.poisson(np.maximum(expected(truth, pulls), 0.0)))
        judged = score_intervals(mu, found.low, found.high)
        off = found.mu - mu
        out[name] = {"width": judged.width, "coverage": judged.coverage, "bias": float(off.mean())}
        out[name] |= {"spread": float(off.std())}
        print(name, out[name], flush=True)
    save(elimination=out)


if __name__ == "__main__":
    {"run": run, "eliminate": eliminate}[sys.argv[1]](Path(sys.argv[2]))
