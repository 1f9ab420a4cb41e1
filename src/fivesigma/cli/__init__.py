"""The command ``fivesigma``: parse, call the library, print. Heavy imports live inside the commands."""

from __future__ import annotations

import warnings
from typing import Any

import click

import fivesigma
from fivesigma.cli.categorise import categorise
from fivesigma.cli.demo import demo
from fivesigma.cli.env import env
from fivesigma.cli.export import export
from fivesigma.cli.higgsml import higgsml
from fivesigma.cli.options import INTERRUPTED
from fivesigma.cli.predict import predict
from fivesigma.cli.report import report_command
from fivesigma.cli.scan import scan
from fivesigma.cli.score import score
from fivesigma.cli.train import train
from fivesigma.errors import FivesigmaError

__all__ = ["main"]


class _Group(click.Group):
    """Commands whose errors are one line on stderr."""

    def invoke(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except FivesigmaError as err:
                raise click.ClickException(" ".join(str(err).split())) from err
            except BrokenPipeError:
                raise  # the reader has enough; click ends quietly
            except OSError as err:
                where = f"{err.filename}: " if err.filename else ""
                raise click.ClickException(f"{where}{err.strerror or err}") from err
            except KeyboardInterrupt:
                click.echo("interrupted", err=True)
                ctx.exit(INTERRUPTED)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"warning: {' '.join(str(message).split())}", err=True)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: fivesigma train events.parquet -o model && fivesigma predict model test.parquet -o scores.csv "
    "&& fivesigma score scores.csv",
)
@click.version_option(fivesigma.__version__, prog_name="fivesigma", message="%(prog)s %(version)s")
def main() -> None:
    """Train weighted classifiers to maximise discovery significance.

    Results go to stdout, all else to stderr. The exit code is 0, 1 after an error that one line explains, 2 after wrong
    usage, 130 after an interruption.
    """


for _command in (demo, train, predict, score, scan, categorise, report_command, export, higgsml, env):
    main.add_command(_command)
