"""``fivesigma score``: the significance of a selection, with its interval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fivesigma.cli.options import scores_options, stream_option
from fivesigma.errors import InputError

if TYPE_CHECKING:
    from fivesigma.significance import Utility


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

    from fivesigma.cut.bootstrap import paired_difference
    from fivesigma.scored.scored_events import ScoredEvents
    from fivesigma.significance import resolve_utility
    from fivesigma.yields import signal_and_background
    from fivesigma.yields import yields as yields_of

    if cut is not None and fraction is not None:
        raise click.UsageError("give --cut or --fraction, not both")
    measure = resolve_utility(utility, b_reg)
    if stream:
        _report(_streamed(scores, cut, fraction, signal, measure, yields), as_json=as_json)
        return
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
        "events": values.size,
        "s": kept.s,
        "b": kept.b,
        "all_s": all_s,
        "all_b": all_b,
        "effective_s": kept.effective_s,
        "effective_b": kept.effective_b,
        "processes": {name: y.sum_of_weights for name, y in kept.by_process.items()},
    }
    _report(found, as_json=as_json)


def _streamed(  # noqa: PLR0917 - the options, in their order
    scores: Path,
    cut: float | None,
    fraction: float | None,
    signal: str | None,
    measure: Utility,
    yields: tuple[float, float] | None,
) -> dict[str, Any]:
    """Read files part by part; the interval is one standard error."""
    import numpy as np

    from fivesigma.cut.binned import BinnedRanking
    from fivesigma.scored.scored_files import ScoredFiles
    from fivesigma.yields import class_sums, significance_of, standard_errors

    files = ScoredFiles(scores, signal, yields)
    if fraction is not None:
        ranking = BinnedRanking(files)
        n = max(1, round(fraction * ranking.n_events))
        ranking.resolve(ranking.bins_of(np.array([n - 1])))
        cuts = ranking.cuts()
        cut = float(cuts.score[np.searchsorted(cuts.last, n - 1)])
    every, kept = files.selected(cut)
    (s, s2), (b, b2) = (class_sums(kept, signal=side) for side in (True, False))
    (all_s, _), (all_b, _) = (class_sums(every, signal=side) for side in (True, False))
    z = significance_of(measure, float(s[0]), float(b[0]))
    error = float(standard_errors(measure, s, b, s2, b2)[0])
    n_all, n_kept = (sum(int(rows.events[0]) for rows in found.values()) for found in (every, kept))
    with_processes = set(kept) != {"signal", "background"}
    return {
        "significance": z,
        "interval": (z - error, z + error),
        "utility": repr(measure),
        "cut": cut,
        "fraction": n_kept / n_all,
        "events": n_all,
        "s": float(s[0]),
        "b": float(b[0]),
        "all_s": float(all_s[0]),
        "all_b": float(all_b[0]),
        "effective_s": float(s[0] ** 2 / s2[0]) if s2[0] > 0 else 0.0,
        "effective_b": float(b[0] ** 2 / b2[0]) if b2[0] > 0 else 0.0,
        "processes": {k: float(v.sum_of_weights[0]) for k, v in sorted(kept.items())} if with_processes else {},
    }


def _report(found: dict[str, Any], *, as_json: bool) -> None:
    """Print the result."""
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
