"""The command ``fivesigma``: parse, call the library, print. Heavy imports live inside the commands.

A command that fails ends with one line on stderr, and leaves no temporary file behind.
"""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

import fivesigma
from fivesigma._tools.progress import end_if_given_up, signalled
from fivesigma.cli.analyse import analyse
from fivesigma.cli.categorise import categorise
from fivesigma.cli.categorise_scores import categorise_scores
from fivesigma.cli.demo import demo
from fivesigma.cli.env import env
from fivesigma.cli.export import export
from fivesigma.cli.fair_universe import fair_universe
from fivesigma.cli.higgsml import higgsml
from fivesigma.cli.options import INTERRUPTED, WORDS
from fivesigma.cli.predict import predict
from fivesigma.cli.rebin import rebin
from fivesigma.cli.report import report_command
from fivesigma.cli.scan import scan
from fivesigma.cli.score import score
from fivesigma.cli.train import train
from fivesigma.errors import FivesigmaError, shortened

__all__ = ["main"]

TERMINATED = 128 + signal.SIGTERM  # the exit code that shells expect


class _Group(click.Group):
    """Commands in the order of an analysis, whose errors are one line on stderr."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: click.echo(f"warning: {_one_line(str(message))}", err=True)
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
                raise click.ClickException(_sentence(err)) from err


def _one_line(message: str, most: int = 1000) -> str:
    return shortened(" ".join(message.split()), most)


def _sentence(err: BaseException) -> str:
    """What to say of an error, also of one that nobody thought of."""
    if isinstance(err, FivesigmaError):
        return _one_line(str(err))
    if isinstance(err, MemoryError):
        return "there is not enough memory; read fewer events, or fewer columns"
    if isinstance(err, OSError):
        where = f"{err.filename}: " if err.filename else ""
        return f"{where}{err.strerror or err}"
    said = _one_line(str(err), 300)
    return (
        f"an unexpected {type(err).__name__}{': ' * bool(said)}{said}; this is a fault of fivesigma: "
        "please report it, with the traceback that FIVESIGMA_DEBUG=1 shows"
    )


@contextmanager
def orderly_end() -> Iterator[None]:
    """Let signals end the command as exceptions do, so that no temporary file stays; a second SIGTERM kills."""

    def end(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
        signalled.append(SystemExit(TERMINATED) if number == signal.SIGTERM else KeyboardInterrupt())
        raise signalled[0]

    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
        end_if_given_up()
    finally:
        signalled.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
    epilog="Example: fivesigma train events.parquet -o model && fivesigma predict model test.parquet -o scores.csv "
    "&& fivesigma score scores.csv",
)
@click.option("--debug", is_flag=True, envvar="FIVESIGMA_DEBUG",
              help="Show the Python traceback of an error; so does FIVESIGMA_DEBUG=1.")  # fmt: skip
@click.version_option(fivesigma.__version__, prog_name="fivesigma", message="%(prog)s %(version)s")
def main(debug: bool) -> None:
    """Choose cuts and categories for discovery significance, and train for it.

    Results go to stdout, all else to stderr. The exit code is 0, 1 after an error that one line explains, 2 after wrong
    usage, 130 after an interruption, 143 after SIGTERM.
    """


for _command in (demo, train, predict, score, scan, categorise, categorise_scores, rebin, report_command, analyse,
                 export, higgsml, fair_universe, env):  # fmt: skip
    main.add_command(_command)
