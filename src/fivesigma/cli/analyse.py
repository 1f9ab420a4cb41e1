"""``fivesigma analyse``: from ntuples to a fitted workspace with one file."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from fivesigma.cli.options import INTERRUPTED, jobs_option
from fivesigma.cli.words import TERMINATED
from fivesigma.errors import FivesigmaError

STEPS = ("read", "train", "score", "categorise", "workspace", "report")


@click.command(epilog="Example: fivesigma analyse vh.yml -o out && cd out && cabinetry fit workspace.json")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FOLDER",
              help="Write model, ntuples, cabinetry.yml, workspace.json, report.html and yields.csv here.")  # fmt: skip
@click.option("--only", type=click.Choice(STEPS), metavar="STEP",
              help=f"Do this step alone, one of {', '.join(STEPS)}; those before it must be done.")  # fmt: skip
@click.option("--force", is_flag=True, help="Do the steps even if nothing changed.")
@click.option("--unblind", is_flag=True, help="Look at the data of the region whose categories are made.")
@jobs_option
@click.option("--friends", is_flag=True, help="Write the new branches alone to the ntuples.")
def analyse(
    config: Path, *, output: Path, only: str | None, force: bool, unblind: bool, jobs: int | None, friends: bool
) -> None:
    """Go from ntuples to a fitted workspace as CONFIG says.

    CONFIG is a configuration of cabinetry with a block Fivesigma. Each step notes a digest of its inputs and is done
    again only if that changed; after an interruption the same command resumes.
    """
    from fivesigma.analysis import analyse as run

    try:
        with _noted_signals() as stop_if_signalled:

            def say(line: str) -> None:
                stop_if_signalled()
                click.echo(line)

            run(
                config,
                output,
                only=only,
                force=force,
                unblind=unblind,
                friends=friends,
                n_jobs=jobs,
                verbose=int(sys.stderr.isatty()),
                say=say,
            )
    except FivesigmaError as err:  # its words are those of the file, not of options
        raise click.ClickException(" ".join(str(err).split())) from err
    except KeyboardInterrupt:
        click.echo("interrupted; the same command resumes", err=True)
        click.get_current_context().exit(INTERRUPTED)


@contextmanager
def _noted_signals() -> Iterator[Callable[[], None]]:
    """Note signals beside what they do: Python drops an exception that falls into the clean-up of an object."""
    seen: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield lambda: None
        return
    before = {number: signal.getsignal(number) for number in numbers}

    def note(number: int, frame: Any) -> None:
        seen.append(number)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    def stop() -> None:
        if seen:
            raise KeyboardInterrupt if seen[0] == signal.SIGINT else SystemExit(TERMINATED)

    for number in numbers:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
