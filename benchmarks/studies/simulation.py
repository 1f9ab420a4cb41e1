"""Compare the toy's columns with those of real events: histograms of both, in simulation.json.

``python -m benchmarks.studies.simulation FILE`` writes them, FILE being the challenge's CSV or a part of it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import ks_2samp

from benchmarks.harness import as_table
from fivesigma.datasets import Events, load_events, make_htautau

RESULTS = Path(__file__).with_suffix(".json")
CLASSES = {"s": "signal", "b": "background"}
N_BINS = 30


def compare(real: Events, toy: Events) -> dict[str, Any]:
    """Edges, shares of both samples and of missing values, and the distance of Kolmogorov and Smirnov."""
    out: dict[str, Any] = {}
    for name in toy.feature_names:
        whole = real.column(name)
        low, high = np.nanquantile(whole, [0.005, 0.995])
        edges = np.linspace(low, high, N_BINS + 1)
        out[name] = {"edges": edges.round(4).tolist()}
        for label, words in CLASSES.items():
            found = out[name][words] = {}
            values = {}
            for sample, events in (("real", real), ("toy", toy)):
                column = events.column(name)[events.y == label].round(3)
                values[sample] = column[~np.isnan(column)]
                counts = np.histogram(values[sample].clip(edges[0], edges[-1]), edges)[0]
                found[sample] = (counts / counts.sum()).round(5).tolist()
                found[f"missing, {sample}"] = round(float(np.isnan(column).mean()), 3)
            found["distance"] = round(float(ks_2samp(*values.values()).statistic), 3)
    return out


def tables() -> dict[str, str]:
    """The columns that differ most, and the median distance."""
    found = json.loads(RESULTS.read_text())
    rows = []
    for words in CLASSES.values():
        distance = {name: row[words]["distance"] for name, row in found.items()}
        worst = sorted(distance, key=lambda name: -distance[name])[:3]
        named = ", ".join(f"`{name}` {distance[name]:.3f}" for name in worst)
        rows.append([words, f"{np.median(list(distance.values())):.3f}", named])
    return {"distances": as_table(["class", "median distance of the 30 columns", "largest distances"], rows)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="real events")
    found = compare(load_events(parser.parse_args().file), make_htautau(100_000, random_state=0))
    RESULTS.write_text(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
