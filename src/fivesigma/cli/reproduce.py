"""``fivesigma higgsml reproduce``: a recipe of the paper, or the best one, from events to a scored submission."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fivesigma.cli.options import jobs_option, sample_option


@click.command(
    epilog="Example: fivesigma higgsml reproduce atlas-higgs-challenge-2014-v2.csv.gz --recipe paper-ten -o paper-ten"
)
@click.argument("events", type=click.Path(path_type=Path))
@click.option("--recipe", "name", default="paper-ten", show_default=True,
              help="plain, paper-ten, paper-full or best.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FOLDER",
              help="For results.json, table.md and submission.csv; a run that broke off there resumes.")  # fmt: skip
@sample_option
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Runs, to see the spread.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the first run.")
@click.option("--quick", is_flag=True, help="Smoke test with 5 % of the trees and epochs.")
@jobs_option
def reproduce(
    events: Path, name: str, output: Path, *, sample: bool, seeds: int, seed: int, quick: bool, jobs: int | None
) -> None:
    """Train a recipe on set t of the challenge's EVENTS, and score it on sets b (public) and v (private).

    All choices are made on set t. Labels and weights of b and v are read once, for the table.

    \b
    plain       one XGBoost model
    paper-ten   five plain and five grown XGBoost models of 500 trees (the paper: 3.72 private)
    paper-full  retrained and grown cascades, XGBoost, a random forest and a net (the paper: 3.726)
    best        a net and decomposed trees, on the 30 columns of the file

    paper-full and best need fivesigma[torch], paper-full fivesigma[store] as well.
    """  # noqa: D301 - click wants the character, not a backslash
    from fivesigma.higgsml.data import load
    from fivesigma.higgsml.recipes import find_recipe
    from fivesigma.higgsml.reproduce import reproduce as run

    recipe = find_recipe(name)
    data = load(events, sample=sample)
    for note in data.notes:
        click.echo(note, err=True)
    results = run(
        data,
        recipe,
        output,
        seeds=range(seed, seed + seeds),
        quick=quick,
        n_jobs=jobs,
        verbose=int(sys.stderr.isatty()),
    )
    click.echo(results)
