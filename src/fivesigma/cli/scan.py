"""``fivesigma scan``: significance against the cut, and the best cut."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import fivesigma
from fivesigma._tools.extras import need
from fivesigma._tools.files import written_whole
from fivesigma.cli.options import (
    PATH,
    OutputFile,
    RegistryOption,
    ScoreOptions,
    overwrite_option,
    print_notes,
    scores_options,
)
from fivesigma.cli.systematics import Asked, of_scores, systematic_option

FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)


@click.command(epilog="Example: fivesigma scan scores.parquet --b-reg 10 --plot scan.png")
@click.argument("scores", type=PATH)
@click.option("--rule", cls=RegistryOption, default="model", metavar="NAME",
              describe=lambda: ", ".join(import_module("fivesigma.cut.rules").RULES),
              help="Choose the best cut by this rule, one of {}.")  # fmt: skip
@systematic_option
@scores_options
@click.option("--plot", type=OutputFile(), metavar="FILE", help="Draw the curve to this .png, .pdf or .svg file.")
@overwrite_option
def scan(scores: Path, *, asked: ScoreOptions, rule: str, systematics: Asked, plot: Path | None) -> None:
    """Find the best cut on a score.

    All cuts on the events in SCORES are scanned. Choose the cut on other events than those whose significance is
    quoted: its value here is optimistic. Intervals (68 %) come from the statistics of the simulated events only. With
    --systematic the significance of every cut is profiled over the systematics.
    """
    import numpy as np

    asked.refuse_stream(systematic=systematics)
    read = asked.read(scores)
    varied = of_scores(systematics, read, asked.yields)
    best = fivesigma.scan(read, utility=asked.measure, rule=rule, systematics=varied)
    print_notes(best.notes)
    interval = best.interval(n_boot=asked.n_boot)
    if plot is not None:
        figure = need("matplotlib.figure").Figure(figsize=(7, 4.5), layout="constrained")
        best.plot(figure.add_subplot())
        with written_whole(plot) as beside:
            figure.savefig(beside, dpi=150)
    if asked.as_json:
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
        if systematics:
            found |= {"systematics": list(best.systematics), "known_background": best.known_background}
        click.echo(json.dumps(found))
        return
    curve = best.curve
    click.echo(f"{'fraction':>10} {'cut':>12} {'s':>12} {'b':>12} {'significance':>13}")
    for fraction in sorted({*FRACTIONS, best.fraction}):
        i = int(np.searchsorted(curve.fraction, fraction))
        z = f"{curve.significance[i]:.4f}" if np.isfinite(curve.significance[i]) else "too thin"
        row = f"{curve.fraction[i]:>10.4f} {curve.cut[i]:>12.6g} {curve.s[i]:>12.6g} {curve.b[i]:>12.6g} {z:>13}"
        click.echo(row + (f"  best by {best.rule}" if fraction == best.fraction else ""))
    low, high = interval.significance
    click.echo(f"significance  {best.significance:.4f}  [{low:.4f}, {high:.4f}] at 68 % (simulation statistics)")
    if systematics:
        click.echo(f"profiled      over {', '.join(best.systematics)}; {best.known_background:.4f} if b were known")
    click.echo(f"cut           {best.cut:.6g}  [{interval.cut[0]:.6g}, {interval.cut[1]:.6g}]")
    click.echo(f"utility       {best.utility!r}")
