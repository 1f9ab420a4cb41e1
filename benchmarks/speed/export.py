"""Scores of an exported model by onnxruntime, beside those of the library; both on one thread."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Figure, benchmark, best_times
from fivesigma import GrownCascadeClassifier, NetClassifier, export
from fivesigma._tools.extras import need
from fivesigma.datasets import make_htautau

N_EVENTS = 10_000
N_TREES = 100


@benchmark()
def speed() -> Iterable[Figure]:
    """Processor time of many events at once, as a ratio, and the largest difference of a score."""
    events = make_htautau(N_EVENTS, random_state=0)
    one: dict[str, Any] = {"random_state": 0, "n_jobs": 1}
    X = np.asarray(events.X, dtype=np.float64)
    models: dict[str, Any] = {
        "XGBoost": GrownCascadeClassifier(n_trees=N_TREES, **one),
        "LightGBM": GrownCascadeClassifier("lightgbm", n_trees=N_TREES, **one),
        "a net": NetClassifier(epochs=1, **one),
    }
    runtime = need("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    for name, model in models.items():
        model.fit(X, events.y, events.weight)
        with tempfile.TemporaryDirectory() as folder:
            written = export(model, Path(folder) / "model.onnx", events=X)
            session = runtime.InferenceSession(written.path, options, providers=["CPUExecutionProvider"])
        library, exported = best_times(
            5,
            lambda model=model: model.predict_proba(X),  # type: ignore[misc]
            lambda session=session: session.run(None, {"features": X}),  # type: ignore[misc]
            clock=time.process_time,
        )
        yield Figure(f"time of onnxruntime over the library's, {name}", exported / library, note="of one thread")
        yield Figure(f"largest difference of a score, {name}", written.largest_difference, 1e-6)
