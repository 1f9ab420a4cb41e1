"""``fivesigma demo``: the whole way on simulated events."""

from __future__ import annotations

from pathlib import Path

import click

from fivesigma.cli.options import PATH, jobs_option, seed_option


@click.command(epilog="Example: fivesigma demo -o my-demo")
@click.option("-o", "--output", type=PATH, default="fivesigma-demo", metavar="FOLDER",
              help="Write model, scores, figure and report to this folder; an earlier demo there is "
              "replaced.")  # fmt: skip
@click.option("--events", "n_events", type=click.IntRange(1000), default=100_000, metavar="N",
              help="Simulate this many events.")  # fmt: skip
@click.option("--trees", "n_trees", type=click.IntRange(1), default=30, metavar="N",
              help="Train this many trees of each model. A cascade gains with few of them, and nothing with "
              "200.")  # fmt: skip
@seed_option
@jobs_option
def demo(output: Path, **settings: int) -> None:
    """Compare a model and a cascade on simulated events.

    A plain model and a cascade with equal budget are trained and compared. Needs no network and no files.
    """
    from fivesigma.demonstration import run_demo

    run_demo(output, **settings)
