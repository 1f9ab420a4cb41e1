"""``fivesigma categorise``: the best categories of a score, a workspace for pyhf and a datacard for combine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fivesigma.cli.options import check_output, force_option, scores_options, stream_option
from fivesigma.cli.systematics import needed_for_quote, of_scores, parsed, systematic_option

GOALS, SEVERAL_GOALS = ("discovery", "measurement"), ("geometric", "sum", "minimum")
# Options that categories for several signals have no use for.
_ONE_SIGNAL = (
    "rule",
    "uncorrelated",
    "systematics",
    "quote_systematics",
    "mc_statistics",
    "signal",
    "yields",
    "replicas",
    "stream",
    "combine",
)


def _refuse_given(parameters: tuple[str, ...], why: str) -> None:
    """Say which of some options was given although it would have no effect."""
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        if parameter.name in parameters and given is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{parameter.opts[-1]} {why}.")


@click.command(
    epilog="Example: fivesigma categorise held_out.csv -k 5 --quote test.csv --b-reg 0 --pyhf workspace.json"
)
@click.argument("scores", type=click.Path(path_type=Path))
@click.option(
    "-k", "--categories", default="auto", show_default=True, metavar="K", help="Number of categories, or auto."
)
@click.option("--quote", type=click.Path(path_type=Path), metavar="SCORES",
              help="Other events, on which the categories are evaluated and quoted.")  # fmt: skip
@click.option("--rule", type=click.Choice(["model", "peak"]), default="model", show_default=True,
              help="Best edges of modelled yields, or of these events as they are.")  # fmt: skip
@click.option("--min-background", type=click.FloatRange(0), default=0.0, show_default=True, help="In each category.")
@click.option("--min-effective", type=click.FloatRange(0),
              help="Effective background events in each category; by default 10, or 25 with systematics.")  # fmt: skip
@click.option("--uncorrelated", is_flag=True,
              help="Treat an uncertain background as independent from category to category.")  # fmt: skip
@systematic_option
@click.option("--quote-systematic", "quote_systematics", multiple=True, metavar="NAME=UP[,DOWN]",
              help="Variations of the events of --quote, for every --systematic that has files.")  # fmt: skip
@click.option("--mc-statistics/--no-mc-statistics", default=None,
              help="Quote with the statistics of the simulation, as pyhf's staterror; by default with systematics.",
              )  # fmt: skip
@click.option("--signals", metavar="NAMES",
              help="Several signals, with commas; SCORES then has process, weight and score_NAME columns.")  # fmt: skip
@click.option("--goal", type=click.Choice([*GOALS, *SEVERAL_GOALS]),
              help="Largest significance (discovery, the default) or smallest uncertainty of the signal strength "
              "(measurement). Of the Z of --signals: geometric mean (default), root of summed squares, or minimum.",
              )  # fmt: skip
@click.option("--floor-processes", metavar="NAMES",
              help="Backgrounds that count for the floors of --signals, with commas; by default all.")  # fmt: skip
@click.option("--keep-all", is_flag=True, help="Put every event of --signals in a category; none is discarded.")
@scores_options
@stream_option
@click.option("--pyhf", type=click.Path(path_type=Path), metavar="FILE", help="Write a HistFactory workspace (JSON).")
@click.option("--combine", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Write datacard.txt and shapes.root for combine.")  # fmt: skip
@force_option
def categorise(
    scores: Path,
    *,
    categories: str,
    quote: Path | None,
    rule: str,
    min_background: float,
    min_effective: float | None,
    uncorrelated: bool,
    systematics: tuple[str, ...],
    quote_systematics: tuple[str, ...],
    mc_statistics: bool | None,
    signals: str | None,
    goal: str | None,
    floor_processes: str | None,
    keep_all: bool,
    signal: str | None,
    utility: str,
    b_reg: float | None,
    yields: tuple[float, float] | None,
    replicas: int,
    as_json: bool,
    stream: bool,
    pyhf: Path | None,
    combine: Path | None,
    force: bool,
) -> None:
    """Find the categories of the score in SCORES with the largest combined significance.

    The optimum is exact, and therefore follows the noise of these events: quote the significance on others (--quote).
    With --systematic the edges are those with the largest significance profiled over the systematics, or with --goal
    measurement those with the smallest uncertainty of the signal strength.
    """
    import fivesigma
    from fivesigma.categories.review import template_notes
    from fivesigma.cut.best_cut import MIN_EFFECTIVE
    from fivesigma.significance import resolve_utility

    if categories != "auto" and not categories.isdigit():
        raise click.BadParameter(f"{categories!r} is neither a number nor auto", param_hint="-k")
    asked = parsed(systematics)
    quoted = parsed(quote_systematics, "--quote-systematic")
    if quoted and quote is None:
        raise click.UsageError("--quote-systematic needs --quote SCORES.")
    if pyhf is not None:
        check_output(pyhf, force=force)
    if signals is not None:
        from fivesigma.cli.several import Asked, categorise_file, names

        _refuse_given(_ONE_SIGNAL, "is not available with --signals")
        if goal in GOALS:
            raise click.UsageError(f"--goal {goal} is not available with --signals.")
        several = Asked(
            names(signals),
            goal or "geometric",
            MIN_EFFECTIVE if min_effective is None else min_effective,
            min_background,
            None if floor_processes is None else names(floor_processes),
            not keep_all,
            resolve_utility(utility, b_reg),
        )
        categorise_file(scores, categories, several, quote, pyhf, as_json=as_json)
        return
    _refuse_given(("floor_processes", "keep_all"), "needs --signals")
    if goal in SEVERAL_GOALS:
        raise click.UsageError(f"--goal {goal} needs --signals.")
    for option in ("--systematic" if asked else "", "--goal measurement" if goal == "measurement" else ""):
        if stream and option:
            raise click.UsageError(f"{option} needs all events in memory; leave --stream out.")
    needed = needed_for_quote(asked, quoted) if quote is not None else []
    kind: Any = fivesigma.ScoredFiles if stream else fivesigma.ScoredEvents.read
    tune = kind(scores, signal, yields)
    found = fivesigma.categorise(
        tune,
        n_categories=int(categories) if categories.isdigit() else "auto",
        utility=resolve_utility(utility, b_reg),
        min_background=min_background,
        min_effective=min_effective,
        rule=rule,
        goal=goal or "discovery",
        correlated=not uncorrelated,
        systematics=of_scores(asked, tune, yields),
        mc_statistics=mc_statistics,
    )
    search = {"bound": found.bound, "gap": found.gap}
    if quote is not None:
        other = kind(quote, signal, yields)
        found = found.evaluate(other, systematics=of_scores(needed, other, yields))
    if stream:
        interval, note = (found.significance - found.error, found.significance + found.error), ""
    else:
        interval, note = found.interval(n_boot=replicas)
    if pyhf is not None:
        workspace = fivesigma.to_pyhf(found)
        fivesigma.write_workspace(workspace, pyhf)
        for note in template_notes(workspace):
            click.echo(f"note: {note}", err=True)
    if combine is not None:
        fivesigma.to_combine(found, combine, force=force)
    what = "uncertainty" if found.goal == "measurement" else "significance"
    if as_json:
        result: dict[str, Any] = {
            "edges": [None if abs(e) == float("inf") else e for e in found.edges.tolist()],
            "s": found.s.tolist(),
            "b": found.b.tolist(),
            what: found.figure,
            f"{what}_interval": interval,
            "held_out": found.held_out,
            "utility": repr(found.utility),
        }
        if asked or found.mc_statistics:
            result |= {"systematics": [one.name for one in asked], "known_background": found.known_background}
            result |= search
        click.echo(json.dumps(result))
        return
    click.echo(repr(found))
    low, high = interval
    click.echo(f"{what}  {found.figure:.4f}  [{low:.4f}, {high:.4f}] at 68 % (simulation statistics)")
    if not found.held_out:
        wrong = "low" if what == "uncertainty" else "high"
        click.echo(
            f"note: these events chose the edges: the interval is too {wrong} and too narrow; give --quote", err=True
        )
    elif note:
        click.echo(f"note: {note}", err=True)
