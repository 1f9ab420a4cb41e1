"""``fivesigma scan``: significance against the cut, and the best cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fivesigma._files import written_whole
from fivesigma.cli.options import check_output, force_option, scores_options, stream_option
from fivesigma.errors import InputError

if TYPE_CHECKING:
    from fivesigma.cut import CutScan

FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)


@click.command(epilog="Example: fivesigma scan scores.parquet --b-reg 10 --plot scan.png")
@click.argument("scores", type=click.Path(path_type=Path))
@click.option("--rule", type=click.Choice(["model", "plateau", "peak", "smooth"]), default="model", show_default=True,
              help="How the best cut is chosen.")  # fmt: skip
@scores_options
@stream_option
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the curve to .png, .pdf or .svg.")
@force_option
def scan(
    scores: Path,
    *,
    rule: str,
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
    (68 %) come from the statistics of the simulated events only.
    """
    import numpy as np

    import fivesigma
    from fivesigma.significance import resolve_utility

    if plot is not None:
        check_output(plot, force=force)
    if plot is not None and stream:
        raise InputError("--plot draws every cut, which --stream does not have; leave one of them out")
    kind: Any = fivesigma.ScoredFiles if stream else fivesigma.ScoredEvents.read
    best = fivesigma.scan(kind(scores, signal, yields), utility=resolve_utility(utility, b_reg), rule=rule)
    if stream:
        interval: Any = (best.significance - best.error, best.significance + best.error), None
    else:
        interval = tuple(best.interval(n_boot=replicas))
    if plot is not None:
        _draw(best, plot)
    if as_json:
        found = {
            "cut": best.cut,
            "cut_interval": interval[1],
            "fraction": best.fraction,
            "significance": best.significance,
            "significance_interval": interval[0],
            "s": best.s,
            "b": best.b,
            "effective_b": best.effective_background,
            "rule": rule,
            "utility": repr(best.utility),
        }
        click.echo(json.dumps(found))
        return
    curve = best.curve
    click.echo(f"{'fraction':>10} {'cut':>12} {'s':>12} {'b':>12} {'significance':>13}")
    rows = [(int(np.searchsorted(curve.fraction, f)), "") for f in FRACTIONS if f != best.fraction]
    rows.append((int(np.searchsorted(curve.fraction, best.fraction)), f"  best by {rule}"))
    for i, mark in sorted(rows):
        z = f"{curve.significance[i]:.4f}" if np.isfinite(curve.significance[i]) else "too thin"
        click.echo(
            f"{curve.fraction[i]:>10.4f} {curve.cut[i]:>12.6g} {curve.s[i]:>12.6g} {curve.b[i]:>12.6g} {z:>13}{mark}"
        )
    low, high = interval[0]
    click.echo(f"significance  {best.significance:.4f}  [{low:.4f}, {high:.4f}] at 68 % (simulation statistics)")
    around = "" if interval[1] is None else f"  [{interval[1][0]:.6g}, {interval[1][1]:.6g}]"
    click.echo(f"cut           {best.cut:.6g}{around}")
    click.echo(f"utility       {best.utility!r}")


def _draw(best: CutScan, path: Path) -> None:
    """Draw the scan to a file."""
    from fivesigma._extras import need

    figure = need("matplotlib.figure").Figure(figsize=(7, 4.5), layout="constrained")
    best.plot(figure.add_subplot())
    with written_whole(path) as beside:
        figure.savefig(beside, dpi=150)
