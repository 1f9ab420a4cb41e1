"""Compare the toy's columns with the real events' and write the table of docs/validation/simulation.md.

Run it with ``python -m benchmarks.studies.simulation_table FILE``, FILE being the challenge's CSV or a part of it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import ks_2samp

from fivesigma.datasets import load_events, make_htautau

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fivesigma.datasets import Events

PAGE = Path(__file__).parents[2] / "docs" / "validation" / "simulation.md"
START, END = "<!-- table: start -->", "<!-- table: end -->"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
CLASSES = (("s", "Signal"), ("b", "Background"))


def cells(values: NDArray[np.float32]) -> str:
    """Share of missing values and quantiles of the others, as table cells."""
    quantiles = np.nanquantile(values, QUANTILES)
    return " | ".join([f"{np.isnan(values).mean():.2f}", *(f"{q:.3g}" for q in quantiles)])


def lines(real: Events, toy: Events) -> Iterator[str]:
    """One table per class, two rows per column: real above toy."""
    for label, title in CLASSES:
        yield f"\n### {title}\n"
        head = ["column", "events", "missing", *(f"{100 * q:.0f} %" for q in QUANTILES), "distance"]
        yield f"| {' | '.join(head)} |"
        yield f"|{'---|' * len(head)}"
        for name in toy.feature_names:
            ours, theirs = (events.column(name)[events.y == label].round(3) for events in (toy, real))
            distance = ks_2samp(ours[~np.isnan(ours)], theirs[~np.isnan(theirs)]).statistic
            yield f"| {name} | real | {cells(theirs)} | |"
            yield f"| | toy | {cells(ours)} | {distance:.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="real events")
    real = load_events(parser.parse_args().file)
    table = "\n".join(lines(real, make_htautau(100_000)))
    before, _, rest = PAGE.read_text().partition(START)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{START}\n{table}\n\n{END}{after}")


if __name__ == "__main__":
    main()
