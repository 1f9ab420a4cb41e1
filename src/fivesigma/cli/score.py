"""``fivesigma score``: the significance of a selection, with its interval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fivesigma.cli.options import scores_options
from fivesigma.errors import InputError


@click.command(epilog="Example: fivesigma score scores.csv --b-reg 10 --yields 692 411000")
@click.argument("scores", type=click.Path(path_type=Path))
@click.option("--cut", type=float, help="Select score >= CUT instead of the model's selection.")
@click.option("--fraction", type=click.FloatRange(0, 1, min_open=True), help="Select this share of the events.")
@scores_options
def score(
    scores: Path,
    *,
    cut: float | None,
    fraction: float | None,
    signal: str | None,
    utility: str,
    b_reg: float | None,
    yields: tuple[float, float] | None,
    replicas: int,
    as_json: bool,
) -> None:
    """Significance of the events in SCORES at the model's cut, or at --cut or --fraction.

    The interval (68 %) comes from the statistics of the simulated events only.
    """
    import numpy as np

    from fivesigma.bootstrap import paired_difference
    from fivesigma.scored import ScoredEvents
    from fivesigma.significance import resolve_utility
    from fivesigma.yields import signal_and_background
    from fivesigma.yields import yields as yields_of

    if cut is not None and fraction is not None:
        raise click.UsageError("give --cut or --fraction, not both")
    measure = resolve_utility(utility, b_reg)
    read = ScoredEvents.read(scores, signal, yields)
    values, is_signal, weight = read.arrays()
    if fraction is not None:
        n = max(1, round(fraction * values.size))
        cut = float(np.partition(values, -n)[-n])
    selected = read.selected if cut is None else values >= cut
    if selected is None:
        raise InputError(f"{scores.name} has no column 'selected': give --cut or --fraction")
    result = paired_difference(selected, selected, is_signal, weight, measure, n_boot=replicas)
    kept = yields_of(selected, is_signal, weight, read.process)
    all_s, all_b = signal_and_background(weight, is_signal)
    found: dict[str, Any] = {
        "significance": result.first,
        "interval": result.first_interval,
        "utility": repr(measure),
        "cut": cut,
        "fraction": float(selected.mean()),
        "s": kept.s,
        "b": kept.b,
        "all_s": all_s,
        "all_b": all_b,
        "effective_s": kept.effective_s,
        "effective_b": kept.effective_b,
        "processes": {name: y.sum_of_weights for name, y in kept.by_process.items()},
    }
    if as_json:
        click.echo(json.dumps(found))
        return
    low, high = result.first_interval
    where = "the model's cut" if cut is None else f"cut {cut:.6g}"
    click.echo(f"significance  {result.first:.4f}  [{low:.4f}, {high:.4f}] at 68 % (simulation statistics)")
    click.echo(f"utility       {measure!r}")
    click.echo(f"selected      {found['fraction']:.2%} of {values.size:,} events at {where}")
    click.echo(f"s             {kept.s:.6g} of {found['all_s']:.6g}  ({kept.effective_s:.1f} effective events)")
    click.echo(f"b             {kept.b:.6g} of {found['all_b']:.6g}  ({kept.effective_b:.1f} effective events)")
    for name, value in found["processes"].items():
        click.echo(f"  {name:12}{value:.6g}")
