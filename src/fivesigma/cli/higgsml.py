"""``fivesigma higgsml``: the 2014 Higgs boson challenge."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import click

from fivesigma.cli.options import (
    PATH,
    OutputFile,
    jobs_option,
    json_option,
    overwrite_option,
    replicas_option,
    seed_option,
)

sample_option = click.option(
    "--sample", is_flag=True, help="Accept a part of the challenge's file, and split it into train and test if needed."
)


@click.group(epilog="Example: fivesigma higgsml score submission.csv --data atlas-higgs-challenge-2014-v2.csv.gz")
def higgsml() -> None:
    """Repeat the 2014 Higgs boson challenge.

    The events are record 328 of the CERN Open Data portal; `fetch` gets them, `simulate` makes a file like it.
    """


@higgsml.command(epilog="Example: fivesigma higgsml fetch data")
@click.argument("target", type=PATH, default=".")
@click.option("--url", metavar="URL", help="Get the file from this other place.")
@click.option("--attempts", type=click.IntRange(1), default=5, metavar="N",
              help="Give up after this many attempts.")  # fmt: skip
@sample_option
def fetch(target: Path, url: str | None, **settings: Any) -> None:
    """Download the challenge's events.

    The 818,238 events come from the CERN Open Data portal. TARGET is a file ending in .csv.gz, or a folder. The file is
    checked before it gets its name.
    """
    from fivesigma.higgsml.download import URL
    from fivesigma.higgsml.download import fetch as fetch_file

    click.echo(fetch_file(target, url=url or URL, progress=sys.stderr.isatty(), **settings))


@higgsml.command(epilog="Example: fivesigma higgsml simulate toy.csv.gz --events 100000")
@click.argument("output", type=OutputFile())
@click.option("--events", type=click.IntRange(1000), default=818_238, metavar="N",
              help="Simulate this many events.")  # fmt: skip
@seed_option
@overwrite_option
def simulate(output: Path, *, events: int, random_state: int) -> None:
    """Simulate a file like the challenge's.

    OUTPUT ends in .csv or .csv.gz. The events are a toy with the challenge's columns, sets and yields; no score on them
    is a score of the challenge.
    """
    from fivesigma.higgsml.simulate import write_simulated

    click.echo(write_simulated(output, events, random_state=random_state))


@higgsml.command(epilog="Example: fivesigma higgsml score submission.csv --data atlas-higgs-challenge-2014-v2.csv.gz")
@click.argument("submission", type=PATH)
@click.option("--data", type=PATH, required=True, metavar="FILE", help="Read the challenge's events from this file.")
@sample_option
@replicas_option
@json_option
def score(submission: Path, data: Path, *, as_json: bool, **settings: Any) -> None:
    """Print the AMS of a submission.

    SUBMISSION (EventId, RankOrder, Class) is checked by Kaggle's rules, and its public and private AMS are printed.
    b_reg is 10 and each set is scaled to the yields of the experiment, as on Kaggle. The intervals (68 %) come from the
    statistics of the simulated events only.
    """
    from fivesigma.higgsml.submission import score_submission

    result = score_submission(submission, data, **settings)
    click.echo(json.dumps(dataclasses.asdict(result)) if as_json else result)


@higgsml.command(
    epilog="Example: fivesigma higgsml reproduce atlas-higgs-challenge-2014-v2.csv.gz --recipe paper-ten -o paper-ten"
)
@click.argument("events", type=PATH)
@click.option("--recipe", "name", default="paper-ten",
              metavar="NAME",
              help="Train this recipe, one of those above.")  # fmt: skip
@click.option("-o", "--output", type=PATH, required=True, metavar="FOLDER",
              help="Write results.json, table.md and submission.csv to this folder; an interrupted run there "
              "resumes.")  # fmt: skip
@sample_option
@click.option("--seeds", type=click.IntRange(1), default=1, metavar="N",
              help="Run this many times, each with the next seed, to see the spread.")  # fmt: skip
@seed_option
@click.option("--quick", is_flag=True, help="Train 5 % of the trees and epochs, to see whether it runs.")
@jobs_option
def reproduce(
    events: Path, name: str, output: Path, *, sample: bool, seeds: int, random_state: int, **settings: Any
) -> None:
    """Train a recipe and print its score.

    It is trained on set t of the challenge's EVENTS, and scored on sets b (public) and v (private). All choices are
    made on set t. Labels and weights of b and v are read once, for the table.

    \b
    plain       one XGBoost model
    paper-ten   five plain and five grown XGBoost models of 500 trees (the paper: 3.72 private)
    paper-full  retrained and grown cascades, XGBoost, a random forest and a net (the paper: 3.726)
    best        three nets and decomposed trees, on the 30 columns of the file

    paper-full and best need fivesigma[torch], paper-full fivesigma[store] as well.
    """  # noqa: D301 - click wants the character, not a backslash
    from fivesigma.higgsml.data import load
    from fivesigma.higgsml.reproduce import find_recipe
    from fivesigma.higgsml.reproduce import reproduce as run

    recipe = find_recipe(name)
    data = load(events, sample=sample)
    for note in data.notes:
        click.echo(note, err=True)
    settings |= {"seeds": range(random_state, random_state + seeds), "verbose": int(sys.stderr.isatty())}
    click.echo(run(data, recipe, output, **settings))
