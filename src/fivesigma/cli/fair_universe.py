"""``fivesigma fair-universe``: intervals of a signal strength under nuisances, judged on pseudo-experiments."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import click

from fivesigma.cli.options import jobs_option


@click.group("fair-universe", epilog="Example: fivesigma fair-universe run toy:400000 -o intervals.json")
def fair_universe() -> None:
    """A benchmark with the nuisances of the FAIR-Universe HiggsML uncertainty challenge."""


@fair_universe.command(epilog="Example: fivesigma fair-universe run toy:1500000 --luminosity 0.1")
@click.argument("data")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="JSON with every interval; a run that broke off resumes there.")  # fmt: skip
@click.option("-k", "--categories", type=click.IntRange(2), default=10, show_default=True, help="Of each score.")
@click.option("--sets", type=click.IntRange(1), default=10, show_default=True, help="Each with a mu of its own.")
@click.option("--experiments", type=click.IntRange(1), default=100, show_default=True, help="In each set.")
@click.option("--luminosity", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True,
              help="Factor of all expected yields.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@jobs_option
def run(
    data: str,
    *,
    output: Path | None,
    categories: int,
    sets: int,
    experiments: int,
    luminosity: float,
    seed: int,
    as_json: bool,
    jobs: int | None,
) -> None:
    """Train on DATA, fit the signal strength in pseudo-experiments, and print width and coverage of the intervals.

    DATA is the challenge's Parquet file, a file with the columns of the 2014 challenge, or toy:N for N simulated
    events. The score that knows the nuisances is compared with a plain score in categories of equal content, and with a
    fit that ignores the nuisances.

    Give many times as many events as an experiment has: chance in few of them moves all fits to the same side.
    """
    from fivesigma.fair_universe import compare, load

    events = load(data, luminosity=luminosity, random_state=seed)
    found = compare(
        events,
        output,
        n_categories=categories,
        sets=sets,
        experiments=experiments,
        random_state=seed,
        n_jobs=jobs,
        verbose=int(sys.stderr.isatty()),
    )
    click.echo(json.dumps(dataclasses.asdict(found)) if as_json else repr(found))
