"""The benchmark of INFERNO (arXiv:1806.04743, table 1): the expected uncertainty of 50 signal events.

``python -m benchmarks.peers.inferno [SEED ...]`` adds to benchmarks/peers/inferno.json after every row: it can be
killed, and the same call resumes.

Three dimensions: background N((2 + r, 0), diag(5, 9)) x Exp(rate lambda), 1000 events; signal N((0, 0), 1) x Exp(rate
2), 50 events; r = 0 and lambda = 3. Row 0: nothing else is uncertain; 1: r is free; 2: r and lambda are free; 3: r
within 0.4 and lambda within 1; 4: the background within 100 events as well. The score is trained on 100,000 events of
each kind, the categories are chosen on 100,000 others, and the uncertainty is the inverse Hessian of the Asimov
likelihood in these categories on 500,000 further events, with slopes from r +- 0.2 and lambda +- 0.5. Events below
the lowest edge are in no category: what the categories leave out is not judged with them.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import fivesigma
from fivesigma._types import Array

RESULTS = Path(__file__).with_suffix(".json")
S, B = 50.0, 1000.0
RATE = 3.0
STEPS = {"r": 0.2, "rate": 0.5}  # of the slopes
#: Free nuisances, and widths of the constrained ones; a relative width for the yield of the background.
ROWS: dict[int, tuple[tuple[str, ...], dict[str, float]]] = {
    0: ((), {}),
    1: (("r",), {}),
    2: (("r", "rate"), {}),
    3: ((), {"r": 0.4, "rate": 1.0}),
    4: ((), {"r": 0.4, "rate": 1.0, "yield": 0.1}),
}
PUBLISHED = {
    "net classifier (paper)": (14.99, 18.94, 23.94, 21.54, 26.71),
    "best INFERNO (paper)": (15.51, 16.79, 16.95, 16.88, 18.67),
    "analytical likelihood (paper)": (14.71, 15.52, 15.65, 15.62, 16.89),
}
BINS = (10, 5)


def signal(n: int, rng: np.random.Generator) -> Array:
    """Signal events."""
    return np.column_stack([rng.normal(size=(n, 2)), rng.exponential(1 / 2, n)])


def background(n: int, rng: np.random.Generator) -> Array:
    """Background events at r = 0 and the nominal rate."""
    gaussian = rng.normal(size=(n, 2)) * np.sqrt([5.0, 9.0]) + [2.0, 0.0]
    return np.column_stack([gaussian, rng.exponential(1 / RATE, n)])


def move(X: Array, r: float = 0.0, rate: float = 0.0) -> Array:
    """The same background events where r and the rate differ by so much."""
    return np.column_stack([X[:, 0] + r, X[:, 1], X[:, 2] * RATE / (RATE + rate)])


def uncertainty(s: Array, b: Array, slopes: dict[str, Array], row: int) -> float:
    """Expected uncertainty of the number of signal events, from the Hessian at the nominal values."""
    free, widths = ROWS[row]
    names = [*free, *widths]
    gradient = np.stack([s / S, *(b if name == "yield" else slopes[name] for name in names)])
    constraint = np.diag([0.0, *(0.0 if name in free else widths[name] ** -2 for name in names)])
    hessian = (gradient / (s + b)) @ gradient.T + constraint
    return float(np.linalg.inv(hessian)[0, 0] ** 0.5)


def sample(n: int, rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
    """Features, labels, weights and processes of n events of each kind."""
    X = np.concatenate([signal(n, rng), background(n, rng)])
    y = np.repeat([1, 0], n)
    return X, y, np.repeat([S / n, B / n], n), np.repeat(["signal", "background"], n)


def variations(X: Array, y: Array, row: int) -> dict[str, tuple[Array, Array]]:
    """The tables of features one standard deviation away; of a free nuisance, one step."""
    free, widths = ROWS[row]
    sizes = {name: STEPS[name] for name in free} | {k: v for k, v in widths.items() if k != "yield"}
    pairs = {}
    for name, size in sizes.items():
        up, down = (np.where((y == 0)[:, None], move(X, **{name: side * size}), X) for side in (1, -1))
        pairs[name] = (up, down)
    return pairs


def run(row: int, seed: int, n: int = 100_000, n_judge: int = 250_000) -> dict[str, Any]:
    """Train, choose categories and judge them, for one row; seconds are of one core."""
    rng = np.random.default_rng([1806, seed])
    started = time.process_time()
    X, y, w, process = sample(n, rng)
    free, widths = ROWS[row]
    normalisation = {"yield": fivesigma.Normalisation("background", widths["yield"])} if "yield" in widths else {}
    model = fivesigma.ProfiledClassifier(goal="measurement", cv=2, random_state=seed, n_jobs=1)
    model.fit(X, y, w, process, {**variations(X, y, row), **normalisation}, free)
    found: dict[str, Any] = {"training": time.process_time() - started}
    found |= {"choice": model.choice_, "pulls": model.pulls_}

    X, y, w, process = sample(n, rng)
    score = model.decision_function(X)

    def scored(table: Array) -> fivesigma.Varied:
        moved = score.copy()
        moved[y == 0] = model.decision_function(table[y == 0])  # signal does not move
        return fivesigma.Varied(score=moved)

    systematics = {name: (scored(up), scored(down)) for name, (up, down) in variations(X, y, row).items()}
    S_events, B_events = signal(n_judge, rng), background(n_judge, rng)
    judged = {"s": model.decision_function(S_events), "b": model.decision_function(B_events)}
    for name in systematics:
        for side in (1, -1):
            judged[f"{name}{side:+d}"] = model.decision_function(move(B_events, **{name: side * STEPS[name]}))
    for bins in BINS:
        started = time.process_time()
        edges = fivesigma.categorise(
            score,
            y,
            w,
            bins,
            goal="measurement",
            systematics={**systematics, **normalisation} or None,
            free=free,
            process=process,
        ).edges
        found["categories"] = time.process_time() - started
        h = {key: np.histogram(values, bins=edges)[0] / n_judge for key, values in judged.items()}
        slopes = {name: B * (h[f"{name}+1"] - h[f"{name}-1"]) / (2 * STEPS[name]) for name in systematics}
        found[f"{bins} bins"] = uncertainty(S * h["s"], B * h["b"], slopes, row)
    return found


def main() -> None:
    """Run rows that are missing."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for seed in map(int, sys.argv[1:] or range(5)):
        for row in ROWS:
            if f"{row}/{seed}" not in results:
                results[f"{row}/{seed}"] = found = run(row, seed)
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")
                print(row, seed, found, flush=True)


if __name__ == "__main__":
    main()
