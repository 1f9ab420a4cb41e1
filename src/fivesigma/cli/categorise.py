"""``fivesigma categorise``: the best categories of a score, a workspace for pyhf and a datacard for combine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import fivesigma
from fivesigma.cli.options import (
    PATH,
    NumberOr,
    ScoreOptions,
    combine_option,
    force_option,
    goal_option,
    min_background_option,
    print_notes,
    pyhf_option,
    quote_option,
    scores_options,
)
from fivesigma.cli.systematics import Asked, needed_for_quote, of_scores, quote_systematic_option, systematic_option


@click.command(
    epilog="Example: fivesigma categorise held_out.csv -k 5 --quote test.csv --b-reg 0 --pyhf workspace.json"
)
@click.argument("scores", type=PATH)
@click.option("-k", "--categories", type=NumberOr("auto", int), default="auto", metavar="K",
              help="Make this many categories; auto finds the number.")  # fmt: skip
@quote_option
@click.option("--rule", type=click.Choice(["model", "peak"]), default="model",
              help="Choose the best edges of modelled yields, or of these events as they are.")  # fmt: skip
@min_background_option
@click.option("--min-effective", type=click.FloatRange(0), metavar="N",
              help="Keep this many effective background events in each category; by default 10, or 25 with "
              "systematics.")  # fmt: skip
@click.option("--uncorrelated", is_flag=True,
              help="Treat an uncertain background as independent from category to category.")  # fmt: skip
@systematic_option
@quote_systematic_option
@click.option("--mc-statistics/--no-mc-statistics", default=None,
              help="Quote with the statistics of the simulation, as pyhf's staterror; by default with "
              "systematics.")  # fmt: skip
@goal_option
@scores_options
@pyhf_option
@combine_option
@force_option
def categorise(
    scores: Path,
    *,
    asked: ScoreOptions,
    categories: int | str,
    quote: Path | None,
    uncorrelated: bool,
    systematics: Asked,
    quote_systematics: Asked,
    pyhf: Path | None,
    combine: Path | None,
    force: bool,
    **settings: Any,
) -> None:
    """Find the best categories of a score.

    They are those with the largest combined significance for the smoothed yields of the events in SCORES, or with
    --rule peak for these events as they are. Quote the significance on other events (--quote). With --systematic the
    edges are those with the largest significance profiled over the systematics, or with --goal measurement those with
    the smallest uncertainty of the signal strength. For several signals at once there is fivesigma categorise-scores.
    """
    from fivesigma.categories.review import template_notes

    measures = settings["goal"] == "measurement"
    asked.refuse_stream(systematic=systematics, **{"goal measurement": measures})
    if quote_systematics and quote is None:
        raise click.UsageError("--quote-systematic needs --quote SCORES.")
    needed = {} if quote is None else needed_for_quote(systematics, quote_systematics)
    tune = asked.read(scores)
    varied = of_scores(systematics, tune, asked.yields)
    settings |= {"utility": asked.measure, "correlated": not uncorrelated, "systematics": varied}
    found = fivesigma.categorise(tune, n_categories=categories, **settings)
    search = {"bound": found.bound, "gap": found.gap}
    if quote is not None:
        other = asked.read(quote)
        found = found.evaluate(other, systematics=of_scores(needed, other, asked.yields))
    if asked.stream:
        low, high, note = found.significance - found.error, found.significance + found.error, ""
    else:
        (low, high), note = found.interval(n_boot=asked.n_boot)
    if pyhf is not None:
        workspace = fivesigma.to_pyhf(found)
        fivesigma.write_workspace(workspace, pyhf)
        print_notes(template_notes(workspace))
    if combine is not None:
        fivesigma.to_combine(found, combine, force=force)
    what = "uncertainty" if measures else "significance"
    if asked.as_json:
        result: dict[str, Any] = {
            "edges": [None if abs(e) == float("inf") else e for e in found.edges.tolist()],
            "s": found.s.tolist(),
            "b": found.b.tolist(),
            what: found.figure,
            f"{what}_interval": (low, high),
            "held_out": found.held_out,
            "utility": repr(found.utility),
        }
        if systematics or found.mc_statistics:
            result |= {"systematics": list(systematics), "known_background": found.known_background, **search}
        click.echo(json.dumps(result))
        return
    click.echo(repr(found))
    click.echo(f"{what}  {found.figure:.4f}  [{low:.4f}, {high:.4f}] at 68 % (simulation statistics)")
    if not found.held_out:
        wrong = "low" if measures else "high"
        note = f"these events chose the edges: the interval is too {wrong} and too narrow; give --quote"
    print_notes([note] if note else [])
