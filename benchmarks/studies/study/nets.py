"""A small dense net, trained plainly or on significance itself with soft counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.studies.protocol import TOTALS, UTILITY, scaled_part
from benchmarks.studies.study.runs import Fitted
from fivesigma import scan
from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array
from fivesigma.datasets import Events
from fivesigma.yields import balanced_class_weights, learner_weights

STEPS, BATCH, WIDTH = 500, 4096, 96
PLAIN_STEPS = 200  # of the direct net too: from random weights soft counts hardly have a slope


def net(*, direct: bool) -> Any:
    """An arm: the net with log loss and balanced classes, or with -AMS of soft counts after the first steps."""

    def fit(train: Events, seed: int) -> Fitted:
        torch = need("torch")
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        rows = np.random.default_rng(seed).permutation(len(train))
        n = rows.size // 4
        part, held = scaled_part(train, rows[n:]), scaled_part(train, rows[:n])
        prepare = _scaled(part.X)
        X = torch.tensor(prepare(part.X))
        y = torch.tensor(part.is_signal.astype(np.float32))
        w = torch.tensor(part.weight.astype(np.float32))
        classes = balanced_class_weights(part.weight, part.is_signal)
        balanced = torch.tensor(learner_weights(part.weight, part.is_signal, classes).astype(np.float32))
        layers = torch.nn
        model = layers.Sequential(
            layers.Linear(X.shape[1], WIDTH),
            layers.SiLU(),
            layers.Linear(WIDTH, WIDTH),
            layers.SiLU(),
            layers.Linear(WIDTH, WIDTH),
            layers.SiLU(),
            layers.Linear(WIDTH, 1),
        )
        optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=STEPS)
        for step in range(STEPS):
            batch = torch.randint(X.shape[0], (BATCH,))
            margin = model(X[batch]).squeeze(1)
            if direct and step >= PLAIN_STEPS:
                loss = -soft_significance(margin, y[batch], w[batch], TOTALS)
            else:
                loss = (balanced[batch] * layers.functional.softplus(margin * (1 - 2 * y[batch]))).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()

        def score(X: AnyArray) -> Array:
            with torch.no_grad():
                return np.asarray(model(torch.tensor(prepare(X))).squeeze(1).numpy(), dtype=np.float64)

        return Fitted(score, scan(score(held.X), held.is_signal, held.weight, UTILITY).cut)

    return fit


def soft_significance(margin: Any, y: Any, w: Any, totals: tuple[float, float]) -> Any:
    """AMS2 of a batch in which each event is selected with its probability, each class scaled to its full yield."""
    kept = w * margin.sigmoid()
    s = totals[0] * (kept * y).sum() / (w * y).sum()
    b = totals[1] * (kept * (1 - y)).sum() / (w * (1 - y)).sum() + UTILITY.b_reg
    return (2 * ((s + b) * (s / b).log1p() - s)).sqrt()


def _scaled(X: AnyArray) -> Any:
    """Standardised columns, heavy tails pulled in, missing values at the mean with a column that says so."""
    with np.errstate(invalid="ignore"):
        tamed = np.sign(X) * np.log1p(np.abs(X))
    mean, spread = np.nanmean(tamed, axis=0), np.nanstd(tamed, axis=0)
    missing = np.flatnonzero(np.isnan(X).any(axis=0))

    def prepare(X: AnyArray) -> Array:
        table = (np.sign(X) * np.log1p(np.abs(X)) - mean) / np.where(spread > 0, spread, 1.0)
        flags = np.isnan(X[:, missing])
        return np.hstack([np.nan_to_num(table, nan=0.0), flags]).astype(np.float32)

    return prepare
