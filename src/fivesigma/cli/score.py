"""``fivesigma score``: the significance of a selection, with its interval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fivesigma.cli.options import scores_options, stream_option
from fivesigma.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fivesigma import ScoredFiles, Utility
    from fivesigma.cut.ranking import Cuts
    from fivesigma.yields import ProcessYields


@click.command(epilog="Example: fivesigma score scores.csv --b-reg 10 --yields 692 411000")
@click.argument("scores", type=click.Path(path_type=Path))
@click.option("--cut", type=float, help="Select score >= CUT instead of the model's selection.")
@click.option("--fraction", type=click.FloatRange(0, 1, min_open=True), help="Select this share of the events.")
@scores_options
@stream_option
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
    stream: bool,
) -> None:
    """Significance of the events in SCORES at the model's cut, or at --cut or --fraction.

    The interval (68 %) comes from the statistics of the simulated events only.
    """
    import numpy as np

    from fivesigma import ScoredEvents, ScoredFiles
    from fivesigma.cut.bootstrap import paired_difference
    from fivesigma.cut.ranking import rank_events
    from fivesigma.significance import resolve_utility
    from fivesigma.yields import class_sums, number_processes, process_yields, significance_of, standard_errors

    if cut is not None and fraction is not None:
        raise click.UsageError("give --cut or --fraction, not both")
    measure = resolve_utility(utility, b_reg)
    if stream:
        cut, every, kept = _streamed(ScoredFiles(scores, signal, yields), cut, fraction)
        (s, s2), (b, b2) = (class_sums(kept, signal=side) for side in (True, False))
        z = significance_of(measure, float(s[0]), float(b[0]))
        error = float(standard_errors(measure, s, b, s2, b2)[0])
        _report(z, (z - error, z + error), measure, cut, every, kept, as_json=as_json)
        return
    read = ScoredEvents.read(scores, signal, yields)
    values, is_signal, weight = read.arrays()
    if fraction is not None:
        cut = _cut_at(rank_events(values, is_signal, weight), fraction)
    selected = read.selected if cut is None else values >= cut
    if selected is None:
        raise InputError(f"{scores.name} has no column 'selected': give --cut or --fraction")
    result = paired_difference(selected, selected, is_signal, weight, measure, n_boot=replicas)
    processes = number_processes(is_signal, read.process, split_mixed=True)
    every, kept = (process_yields(rows, 1, weight, processes) for rows in (np.zeros(values.size, int), selected - 1))
    _report(result.first, result.first_interval, measure, cut, every, kept, as_json=as_json)


def _streamed(files: ScoredFiles, cut: float | None, fraction: float | None) -> tuple[float | None, Any, Any]:
    """The cut, and yields of all and of selected events, in passes over files."""
    from fivesigma.cut.binned import BinnedRanking

    if fraction is not None:
        cut = _cut_at(BinnedRanking(files).cuts(), fraction)
    return cut, *files.selected(cut)


def _cut_at(cuts: Cuts, fraction: float) -> float:
    """The tightest cut that keeps a fraction of the events."""
    n = max(1, round(fraction * cuts.n_events))
    return float(cuts.thresholds([cuts.last.searchsorted(n - 1)])[0])


def _report(  # noqa: PLR0917 - one line of the result each
    z: float,
    interval: tuple[float, float],
    measure: Utility,
    cut: float | None,
    every: Mapping[str, ProcessYields],
    kept: Mapping[str, ProcessYields],
    *,
    as_json: bool,
) -> None:
    """Print the result."""
    from fivesigma.yields import class_sums

    n_all, n_kept = (sum(int(rows.events[0]) for rows in found.values()) for found in (every, kept))
    found: dict[str, Any] = {"significance": z, "interval": interval, "utility": repr(measure), "cut": cut}
    found |= {"fraction": n_kept / n_all, "events": n_all}
    for name, side in (("s", True), ("b", False)):
        total, squares = (float(sums[0]) for sums in class_sums(kept, signal=side))
        found |= {name: total, f"all_{name}": float(class_sums(every, signal=side)[0][0])}
        found[f"effective_{name}"] = total**2 / squares if squares > 0 else 0.0
    known = {} if set(kept) == {"signal", "background"} else kept  # else the events have no processes
    found["processes"] = {name: float(rows.sum_of_weights[0]) for name, rows in sorted(known.items())}
    if as_json:
        click.echo(json.dumps(found))
        return
    low, high = found["interval"]
    where = "the model's cut" if found["cut"] is None else f"cut {found['cut']:.6g}"
    click.echo(f"significance  {found['significance']:.4f}  [{low:.4f}, {high:.4f}] at 68 % (simulation statistics)")
    click.echo(f"utility       {found['utility']}")
    click.echo(f"selected      {found['fraction']:.2%} of {found['events']:,} events at {where}")
    click.echo(f"s             {found['s']:.6g} of {found['all_s']:.6g}  ({found['effective_s']:.1f} effective events)")
    click.echo(f"b             {found['b']:.6g} of {found['all_b']:.6g}  ({found['effective_b']:.1f} effective events)")
    for name, value in found["processes"].items():
        click.echo(f"  {name:12}{value:.6g}")
