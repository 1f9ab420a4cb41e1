"""The command ``fivesigma``: parse, call the library, print. Heavy imports live inside the commands."""

from __future__ import annotations

import warnings
from typing import Any

import click

import fivesigma
from fivesigma.cli.analyse import analyse
from fivesigma.cli.categorise import categorise
from fivesigma.cli.demo import demo
from fivesigma.cli.env import env
from fivesigma.cli.export import export
from fivesigma.cli.fair_universe import fair_universe
from fivesigma.cli.higgsml import higgsml
from fivesigma.cli.options import INTERRUPTED
from fivesigma.cli.predict import predict
from fivesigma.cli.rebin import rebin
from fivesigma.cli.report import report_command
from fivesigma.cli.scan import scan
from fivesigma.cli.score import score
from fivesigma.cli.train import train
from fivesigma.cli.words import one_line, orderly_end, sentence

__all__ = ["main"]


class _Group(click.Group):
    """Commands whose errors are one line on stderr."""

    def invoke(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                with orderly_end():
                    return super().invoke(ctx)
            except (BrokenPipeError, click.ClickException, click.exceptions.Exit, click.Abort):
                raise  # the reader has enough, and click ends quietly; or click's own
            except KeyboardInterrupt:
                click.echo("interrupted", err=True)
                ctx.exit(INTERRUPTED)
            except BaseException as err:
                if not isinstance(err, Exception) and type(err).__name__ != "PanicException":  # of Rust, in polars
                    raise
                if ctx.params.get("debug"):
                    raise
                raise click.ClickException(sentence(err)) from err


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"warning: {one_line(str(message))}", err=True)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: fivesigma train events.parquet -o model && fivesigma predict model test.parquet -o scores.csv "
    "&& fivesigma score scores.csv",
)
@click.option("--debug", is_flag=True, envvar="FIVESIGMA_DEBUG",
              help="Show the Python traceback of an error; so does FIVESIGMA_DEBUG=1.")  # fmt: skip
@click.version_option(fivesigma.__version__, prog_name="fivesigma", message="%(prog)s %(version)s")
def main(debug: bool) -> None:
    """Train weighted classifiers to maximise discovery significance.

    Results go to stdout, all else to stderr. The exit code is 0, 1 after an error that one line explains, 2 after wrong
    usage, 130 after an interruption, 143 after SIGTERM.
    """


for _command in (
    demo,
    train,
    predict,
    score,
    scan,
    categorise,
    rebin,
    report_command,
    analyse,
    export,
    higgsml,
    fair_universe,
    env,
):
    main.add_command(_command)
