"""``fivesigma fair-universe``: intervals of a signal strength under nuisances, judged on pseudo-experiments."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import click

from fivesigma.cli.options import jobs_option, json_option, seed_option


@click.command("fair-universe", epilog="Example: fivesigma fair-universe toy:400000 -o intervals.json")
@click.argument("data")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write every interval to this file (JSON).")  # fmt: skip
@click.option("-k", "--categories", "n_categories", type=click.IntRange(2), default=10, metavar="K",
              help="Make this many categories of each score.")  # fmt: skip
@click.option("--sets", type=click.IntRange(1), default=10, metavar="N",
              help="Draw this many sets of pseudo-experiments, each with a signal strength of its own.")  # fmt: skip
@click.option("--experiments", type=click.IntRange(1), default=100, metavar="N",
              help="Draw this many pseudo-experiments in each set.")  # fmt: skip
@click.option("--luminosity", type=click.FloatRange(0, min_open=True), default=1.0,
              metavar="FACTOR", help="Multiply all expected yields by this factor.")  # fmt: skip
@seed_option
@json_option
@jobs_option
def fair_universe(
    data: str, *, output: Path | None, luminosity: float, random_state: int, as_json: bool, **settings: Any
) -> None:
    """Run a benchmark of fits with nuisances.

    The nuisances are those of the FAIR-Universe HiggsML uncertainty challenge. A model is trained on DATA, the signal
    strength is fitted in pseudo-experiments, and width and coverage of the intervals are printed. DATA is the
    challenge's Parquet file, a file with the columns of the 2014 challenge, or toy:N for N simulated events. The score
    that knows the nuisances is compared with a plain score in categories of equal content, and with a fit that ignores
    the nuisances.

    Give many times as many events as an experiment has: chance in few of them moves all fits to the same side.
    """
    from fivesigma.fair_universe import compare, load

    events = load(data, luminosity=luminosity, random_state=random_state)
    found = compare(events, output, random_state=random_state, verbose=int(sys.stderr.isatty()), **settings)
    click.echo(json.dumps(dataclasses.asdict(found)) if as_json else repr(found))
