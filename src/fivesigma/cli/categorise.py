"""``fivesigma categorise``: the best categories of a score, and a workspace for pyhf."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fivesigma.cli.options import check_output, force_option, scores_options, stream_option


@click.command(
    epilog="Example: fivesigma categorise held_out.csv -k 5 --quote test.csv --b-reg 0 --pyhf workspace.json"
)
@click.argument("scores", type=click.Path(path_type=Path))
@click.option(
    "-k", "--categories", default="auto", show_default=True, metavar="K", help="Number of categories, or auto."
)
@click.option("--quote", type=click.Path(path_type=Path), metavar="SCORES",
              help="Other events, on which the categories are evaluated and quoted.")  # fmt: skip
@click.option("--rule", type=click.Choice(["peak", "smooth"]), default="peak", show_default=True,
              help="Best edges of these events as they are, or of their smoothed yields.")  # fmt: skip
@click.option("--min-background", type=click.FloatRange(0), default=0.0, show_default=True, help="In each category.")
@click.option("--min-effective", type=click.FloatRange(0), default=10.0, show_default=True,
              help="Effective background events in each category.")  # fmt: skip
@click.option("--uncorrelated", is_flag=True,
              help="Treat an uncertain background as independent from category to category.")  # fmt: skip
@click.option("--signals", metavar="NAMES",
              help="Several signals, with commas; SCORES then has process, weight and score_NAME columns.")  # fmt: skip
@scores_options
@stream_option
@click.option("--pyhf", type=click.Path(path_type=Path), metavar="FILE", help="Write a HistFactory workspace (JSON).")
@force_option
def categorise(
    scores: Path,
    *,
    categories: str,
    quote: Path | None,
    rule: str,
    min_background: float,
    min_effective: float,
    uncorrelated: bool,
    signals: str | None,
    signal: str | None,
    utility: str,
    b_reg: float | None,
    yields: tuple[float, float] | None,
    replicas: int,
    as_json: bool,
    stream: bool,
    pyhf: Path | None,
    force: bool,
) -> None:
    """Find the categories of the score in SCORES with the largest combined significance.

    The optimum is exact, and therefore follows the noise of these events: quote the significance on others (--quote).
    """
    import fivesigma
    from fivesigma.significance import resolve_utility

    if categories != "auto" and not categories.isdigit():
        raise click.BadParameter(f"{categories!r} is neither a number nor auto", param_hint="-k")
    if pyhf is not None:
        check_output(pyhf, force=force)
    if signals is not None:
        from fivesigma.cli.several import categorise_file

        categorise_file(scores, signals, categories, quote, pyhf, (min_effective, min_background), as_json=as_json)
        return
    kind: Any = fivesigma.ScoredFiles if stream else fivesigma.ScoredEvents.read
    found = fivesigma.categorise(
        kind(scores, signal, yields),
        n_categories=int(categories) if categories.isdigit() else "auto",
        utility=resolve_utility(utility, b_reg),
        min_background=min_background,
        min_effective=min_effective,
        rule=rule,
        correlated=not uncorrelated,
    )
    if quote is not None:
        found = found.evaluate(kind(quote, signal, yields))
    if stream:
        interval = found.significance - found.error, found.significance + found.error
    else:
        interval = found.interval(n_boot=replicas).significance
    if pyhf is not None:
        fivesigma.write_workspace(fivesigma.to_pyhf(found), pyhf)
    if as_json:
        result = {
            "edges": [None if abs(e) == float("inf") else e for e in found.edges.tolist()],
            "s": found.s.tolist(),
            "b": found.b.tolist(),
            "significance": found.significance,
            "significance_interval": interval,
            "held_out": found.held_out,
            "utility": repr(found.utility),
        }
        click.echo(json.dumps(result))
        return
    click.echo(repr(found))
    low, high = interval
    click.echo(f"significance  {found.significance:.4f}  [{low:.4f}, {high:.4f}] at 68 % (simulation statistics)")
