"""``fivesigma scan``: significance against the cut, and the best cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fivesigma._tools.files import written_whole
from fivesigma.cli.options import check_output, force_option, scores_options, stream_option
from fivesigma.cli.systematics import of_scores, parsed, systematic_option

if TYPE_CHECKING:
    from fivesigma.cut.best_cut import CutScan

FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)


class RuleName(click.ParamType):  # type: ignore[type-arg] # in older versions it takes none
    """One of the rules of the registry, which is not imported before it is needed."""

    name = "rule"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002 - as click calls it
        """What the help shows."""
        from fivesigma.cut.rules import RULES

        return f"[{'|'.join(RULES)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse other names, as a choice does."""
        from fivesigma.cut.rules import RULES

        return click.Choice(list(RULES)).convert(value, param, ctx)


@click.command(epilog="Example: fivesigma scan scores.parquet --b-reg 10 --plot scan.png")
@click.argument("scores", type=click.Path(path_type=Path))
@click.option("--rule", type=RuleName(), default="model", show_default=True, help="How the best cut is chosen.")
@systematic_option
@scores_options
@stream_option
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the curve to .png, .pdf or .svg.")
@force_option
def scan(
    scores: Path,
    *,
    rule: str,
    systematics: tuple[str, ...],
    signal: str | None,
    utility: str,
    b_reg: float | None,
    yields: tuple[float, float] | None,
    replicas: int,
    as_json: bool,
    stream: bool,
    plot: Path | None,
    force: bool,
) -> None:
    """Scan all cuts on the events in SCORES and choose the best.

    Choose the cut on other events than those whose significance is quoted: its value here is optimistic. Intervals
    (68 %) come from the statistics of the simulated events only. With --systematic the significance of every cut is
    profiled over the systematics.
    """
    import numpy as np

    import fivesigma
    from fivesigma.significance import resolve_utility

    asked = parsed(systematics)
    if plot is not None:
        check_output(plot, force=force)
    if stream and asked:
        raise click.UsageError("--systematic needs all events in memory; leave --stream out.")
    kind: Any = fivesigma.ScoredFiles if stream else fivesigma.ScoredEvents.read
    read = kind(scores, signal, yields)
    varied = of_scores(asked, read, yields)
    best = fivesigma.scan(read, utility=resolve_utility(utility, b_reg), rule=rule, systematics=varied)
    for note in best.notes:
        click.echo(f"note: {note}", err=True)
    interval = best.interval(n_boot=replicas)
    if plot is not None:
        _draw(best, plot)
    if as_json:
        found: dict[str, Any] = {
            "cut": best.cut,
            "cut_interval": interval.cut,
            "fraction": best.fraction,
            "significance": best.significance,
            "significance_interval": interval.significance,
            "s": best.s,
            "b": best.b,
            "effective_b": best.effective_background,
            "rule": best.rule,
            "utility": repr(best.utility),
        }
        if asked:
            found |= {"systematics": list(best.systematics), "known_background": best.known_background}
        click.echo(json.dumps(found))
        return
    curve = best.curve
    click.echo(f"{'fraction':>10} {'cut':>12} {'s':>12} {'b':>12} {'significance':>13}")
    rows = [(int(np.searchsorted(curve.fraction, f)), "") for f in FRACTIONS if f != best.fraction]
    rows.append((int(np.searchsorted(curve.fraction, best.fraction)), f"  best by {best.rule}"))
    for i, mark in sorted(rows):
        z = f"{curve.significance[i]:.4f}" if np.isfinite(curve.significance[i]) else "too thin"
        click.echo(
            f"{curve.fraction[i]:>10.4f} {curve.cut[i]:>12.6g} {curve.s[i]:>12.6g} {curve.b[i]:>12.6g} {z:>13}{mark}"
        )
    low, high = interval.significance
    click.echo(f"significance  {best.significance:.4f}  [{low:.4f}, {high:.4f}] at 68 % (simulation statistics)")
    if asked:
        click.echo(f"profiled      over {', '.join(best.systematics)}; {best.known_background:.4f} if b were known")
    click.echo(f"cut           {best.cut:.6g}  [{interval.cut[0]:.6g}, {interval.cut[1]:.6g}]")
    click.echo(f"utility       {best.utility!r}")


def _draw(best: CutScan, path: Path) -> None:
    """Draw the scan to a file."""
    from fivesigma._tools.extras import need

    figure = need("matplotlib.figure").Figure(figsize=(7, 4.5), layout="constrained")
    best.plot(figure.add_subplot())
    with written_whole(path) as beside:
        figure.savefig(beside, dpi=150)
