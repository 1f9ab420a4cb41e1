"""``fivesigma analyse``: from ntuples to a fitted workspace with one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from fivesigma._tools.progress import end_if_given_up
from fivesigma.cli.options import INTERRUPTED, PATH, jobs_option

STEPS = ("read", "train", "score", "categorise", "workspace", "report")


@click.command(epilog="Example: fivesigma analyse vh.yml -o out && cd out && cabinetry fit workspace.json")
@click.argument("config", type=PATH)
@click.option("-o", "--output", required=True, type=PATH, metavar="FOLDER",
              help="Write model, ntuples, cabinetry.yml, workspace.json, report.html and yields.csv here.")  # fmt: skip
@click.option("--only", type=click.Choice(STEPS), metavar="STEP",
              help=f"Do this step alone, one of {', '.join(STEPS)}; those before it must be done.")  # fmt: skip
@click.option("--force", is_flag=True, help="Do the steps even if nothing changed.")
@click.option("--unblind", is_flag=True, help="Count and fill the data of the regions whose categories are made.")
@jobs_option
@click.option("--friends", is_flag=True, help="Write the new branches alone to the ntuples.")
def analyse(config: Path, output: Path, **settings: Any) -> None:
    """Go from ntuples to a fitted workspace as CONFIG says.

    CONFIG is a configuration of cabinetry with a block Fivesigma. Each step notes a digest of its inputs and is done
    again only if that changed; after an interruption the same command resumes.
    """
    from fivesigma.analysis import analyse as run

    def say(line: str) -> None:
        end_if_given_up()
        click.echo(line)

    try:
        run(config, output, **settings, verbose=int(sys.stderr.isatty()), say=say)
    except KeyboardInterrupt:
        click.echo("interrupted; the same command resumes", err=True)
        click.get_current_context().exit(INTERRUPTED)
