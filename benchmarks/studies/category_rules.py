"""The two rules that choose categories, on the events that chose them and on others.

``python -m benchmarks.studies.category_rules [events.parquet]``: two Gaussians, for which the expected significance
is known,
and, if a file with the columns of the 2014 challenge is given, an XGBoost score on its events: fitted on one half of
set t, edges chosen on the other half, quoted on set b, each scaled to the full yields, for several halves.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from benchmarks.peers.gato_comparison import expected_significance, gaussians
from fivesigma.categories import categorise
from fivesigma.categories.one_score.search import RULES
from fivesigma.challenge import MISSING, YIELDS
from fivesigma.errors import SmallSampleWarning
from fivesigma.yields import balanced_class_weights, learner_weights, rescale

TOTALS = (YIELDS["s"], YIELDS["b"])
N_CATEGORIES = (1, 2, 3, 5, 8)


def on_gaussians(n_events: int = 40_000, n_samples: int = 12) -> list[dict[str, Any]]:
    """Mean significance in sample and expected, for each rule and number of categories."""
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for seed in range(n_samples):
        sample = gaussians(100 + seed, n_events)
        for k in N_CATEGORIES:
            for rule in RULES:
                chosen = categorise(sample.score, sample.signal, sample.weight, k, rule=rule)
                found.setdefault((k, rule), []).append((chosen.significance, expected_significance(chosen.edges)))
    return _figures("Gaussians", found)


def on_events(path: str, n_splits: int = 6) -> list[dict[str, Any]]:
    """The same for an XGBoost score on simulated events of the 2014 challenge."""
    import polars as pl
    import xgboost as xgb

    frame = pl.read_parquet(path)
    features = [name for name in frame.columns if name.startswith(("DER_", "PRI_"))]
    (X, y, w), (X_b, y_b, w_b) = (
        (part.select(features).to_numpy(), (part["Label"] == "s").to_numpy(), part["KaggleWeight"].to_numpy())
        for part in (frame.filter(pl.col("KaggleSet") == name) for name in "tb")
    )
    w_b = rescale(w_b, y_b, TOTALS)
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for seed in range(n_splits):
        fit, tune = np.array_split(np.random.default_rng(seed).permutation(y.size), 2)
        model = xgb.XGBClassifier(n_estimators=150, max_depth=5, learning_rate=0.1, missing=MISSING, n_jobs=1)
        weights = learner_weights(w[fit], y[fit], balanced_class_weights(w[fit], y[fit]))
        model.fit(X[fit], y[fit], sample_weight=weights)
        score, score_b = (model.predict_proba(part)[:, 1] for part in (X[tune], X_b))
        w_tune = rescale(w[tune], y[tune], TOTALS)
        for k in N_CATEGORIES:
            for rule in RULES:
                chosen = categorise(score, y[tune], w_tune, k, rule=rule)
                outside = chosen.evaluate(score_b, y_b, w_b).significance
                found.setdefault((k, rule), []).append((chosen.significance, outside))
    return _figures("events", found)


def _figures(title: str, found: dict[tuple[int, str], list[tuple[float, float]]]) -> list[dict[str, Any]]:
    """Means, and what the smooth rule gains on other events with its standard error."""
    out: list[dict[str, Any]] = []
    for k in N_CATEGORIES:
        peak, smooth = (np.array(found[k, rule]) for rule in RULES)
        for rule, values in zip(RULES, (peak, smooth), strict=True):
            for where, mean in zip(("in", "out"), values.mean(axis=0), strict=True):
                out.append({"name": f"{title}, K = {k}, {rule}, {where}", "value": mean, "limit": None, "unit": "Z"})
        gain = smooth[:, 1] - peak[:, 1]
        error = gain.std(ddof=1) / np.sqrt(gain.size)
        name = f"{title}, K = {k}, smooth above peak out of sample, ± {error:.4f}"
        out.append({"name": name, "value": gain.mean(), "limit": None, "unit": "Z"})
    return out


def main() -> None:
    warnings.simplefilter("ignore", SmallSampleWarning)
    for figure in on_gaussians() + (on_events(sys.argv[1]) if len(sys.argv) > 1 else []):
        print(f"{figure['name']}: {figure['value']:.4f}")


if __name__ == "__main__":
    main()
