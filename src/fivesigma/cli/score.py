"""``fivesigma score``: the significance of a selection, with its interval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fivesigma.cli.options import PATH, ScoreOptions, scores_options
from fivesigma.errors import InputError


@click.command(epilog="Example: fivesigma score scores.csv --b-reg 10 --yields 692 411000")
@click.argument("scores", type=PATH)
@click.option("--cut", type=float, metavar="CUT", help="Select the events with a score of at least CUT.")
@click.option("--fraction", type=click.FloatRange(0, 1, min_open=True), metavar="SHARE",
              help="Select this share of the events, those with the highest scores.")  # fmt: skip
@scores_options
def score(scores: Path, *, asked: ScoreOptions, cut: float | None, fraction: float | None) -> None:
    """Print the significance of a selection.

    SCORES has events with scores, as fivesigma predict writes them; they are selected at the model's cut, or at --cut
    or --fraction. The interval (68 %) comes from the statistics of the simulated events only.
    """
    from fivesigma.yields import class_sums

    if cut is not None and fraction is not None:
        raise click.UsageError("give --cut or --fraction, not both")
    found: dict[str, Any] = {"significance": 0.0, "interval": (0.0, 0.0), "utility": repr(asked.measure)}
    select = _select_in_files if asked.stream else _select
    found["significance"], found["interval"], found["cut"], by_process = select(scores, asked, cut, fraction)
    n_all, n_kept = (sum(int(rows.events[k:].sum()) for rows in by_process.values()) for k in (0, 1))
    found |= {"fraction": n_kept / n_all, "events": n_all}
    for name, side in (("s", True), ("b", False)):
        sums, squares = class_sums(by_process, signal=side)
        found |= {name: float(sums[1]), f"all_{name}": float(sums.sum())}
        found[f"effective_{name}"] = float(sums[1] ** 2 / squares[1]) if squares[1] > 0 else 0.0
    known = {} if set(by_process) == {"signal", "background"} else by_process  # else the events have no processes
    found["processes"] = {name: float(rows.sum_of_weights[1]) for name, rows in sorted(known.items())}
    if asked.as_json:
        click.echo(json.dumps(found))
        return
    low, high = found["interval"]
    where = "the model's cut" if found["cut"] is None else f"cut {found['cut']:.6g}"
    click.echo(f"significance  {found['significance']:.4f}  [{low:.4f}, {high:.4f}] at 68 % (simulation statistics)")
    click.echo(f"utility       {found['utility']}")
    click.echo(f"selected      {found['fraction']:.2%} of {found['events']:,} events at {where}")
    for name in ("s", "b"):
        effective = f"({found[f'effective_{name}']:.1f} effective events)"
        click.echo(f"{name:14}{found[name]:.6g} of {found[f'all_{name}']:.6g}  {effective}")
    for name, value in found["processes"].items():
        click.echo(f"  {name:12}{value:.6g}")


def _select(scores: Path, asked: ScoreOptions, cut: float | None, fraction: float | None) -> tuple[Any, ...]:
    """Significance, interval and cut of a selection, and yields by process of events outside and inside it."""
    import numpy as np

    from fivesigma.cut.bootstrap import paired_difference
    from fivesigma.cut.ranking import rank_events
    from fivesigma.yields import number_processes, process_yields

    read = asked.read(scores)
    values, is_signal, weight = read.arrays()
    if fraction is not None:
        cut = rank_events(values, is_signal, weight).cut_at(fraction)
    selected = read.selected if cut is None else values >= cut
    if selected is None:
        raise InputError(f"{scores.name} has no column 'selected': give --cut or --fraction")
    pair = paired_difference(selected, selected, is_signal, weight, asked.measure, n_boot=asked.n_boot)
    processes = number_processes(is_signal, read.process, split_mixed=True)
    return pair.first, pair.first_interval, cut, process_yields(selected.astype(np.intp), 2, weight, processes)


def _select_in_files(scores: Path, asked: ScoreOptions, cut: float | None, fraction: float | None) -> tuple[Any, ...]:
    """The same in passes over files, with a standard error in place of a bootstrap."""
    import numpy as np

    from fivesigma.cut.binned import BinnedRanking
    from fivesigma.yields import class_sums, significance_of, standard_errors

    files = asked.read(scores)
    if fraction is not None:
        cut = BinnedRanking(files).cuts().cut_at(fraction)
    by_process = files.by_process(None if cut is None else np.array([-np.inf, cut, np.inf]))
    (s, s2), (b, b2) = (class_sums(by_process, signal=side) for side in (True, False))
    z = significance_of(asked.measure, float(s[1]), float(b[1]))
    error = float(standard_errors(asked.measure, s[1:], b[1:], s2[1:], b2[1:])[0])
    return z, (z - error, z + error), cut, by_process
