"""``fivesigma train``: events in, a saved model out."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import click

from fivesigma.challenge import MISSING
from fivesigma.cli.config import config_option
from fivesigma.cli.options import (
    INTERRUPTED,
    column_or_none,
    force_option,
    jobs_option,
    number_or_none,
    signal_option,
    tree_option,
    utility_options,
    where_option,
)
from fivesigma.errors import InputError

TREES = {"grown": 500, "retrained": 200, "none": 500}


@click.command(epilog="Example: fivesigma train events.parquet -o model --features 'PRI_*' --b-reg 10 --trees 300")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="Save the model here, as a folder or as a .zip file.",
)
@click.option("--learner", type=click.Choice(["auto", "xgboost", "lightgbm", "histogram"]), default="auto",
              show_default=True, help="Train with this library; histogram is that of scikit-learn.")  # fmt: skip
@click.option("--cascade", type=click.Choice(list(TREES)), default="grown", show_default=True,
              help="Grow one booster, retrain a booster in each round, or train the plain model.")  # fmt: skip
@click.option("--trees", type=click.IntRange(1), metavar="N",
              help="Train this many trees; by default 500, or 200 in each round of a retrained cascade.")  # fmt: skip
@utility_options
@click.option("--held-out", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.25, show_default=True,
              metavar="FRACTION",
              help="Hold out this fraction of the events to drive the cascade and to tune the cut.")  # fmt: skip
@click.option("--features", multiple=True, metavar="NAME",
              help="Use this column, or the number columns that match this pattern, as features; may be repeated. By "
              "default all number columns without another role are features.")  # fmt: skip
@click.option("--label", default="Label", show_default=True, metavar="COLUMN",
              help="Read the labels of signal and background from this column.")  # fmt: skip
@signal_option
@click.option("--weight", default="Weight", show_default=True, metavar="COLUMN",
              help="Read the expected yield of each event from this column; none means that each is one.")  # fmt: skip
@click.option("--process", metavar="COLUMN",
              help="Read from this column what each event was simulated as; splits are stratified by it.")  # fmt: skip
@click.option("--missing", type=number_or_none, default=f"{MISSING:g}", show_default=True, metavar="CODE",
              help="Read this number as a missing value; none if no number means that.")  # fmt: skip
@tree_option
@where_option
@click.option("--negative-weights", type=click.Choice(["error", "zero", "abs"]), default="error", show_default=True,
              help="Refuse negative weights, or show the learner zero or their absolute value instead.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed the split and the learner.")
@jobs_option
@config_option
@click.option("--resume", is_flag=True, help="Resume a run that was interrupted.")
@force_option
def train(files: tuple[str, ...], output: Path, resume: bool, force: bool, **options: Any) -> None:
    """Train on events in FILE... (CSV, Parquet or ROOT) and save the model.

    Until it is done, the run is kept in MODEL.checkpoint, every 50 trees or after every round; --resume resumes it.
    """
    from fivesigma import save
    from fivesigma.datasets import load_events
    from fivesigma.store.archive import check_target

    check_target(output, force=force)
    checkpoint = output.with_name(f"{output.name}.checkpoint")
    if checkpoint.exists() and not resume:
        if not force:
            raise InputError(
                f"{checkpoint} holds a run that was interrupted: add --resume to resume it or --force to start anew"
            )
        shutil.rmtree(checkpoint)
    events = load_events(
        files,
        features=list(options["features"]) or None,
        label=options["label"],
        weight=column_or_none(options["weight"]),
        process=options["process"],
        missing=column_or_none(options["missing"]),
        signal=options["signal"],
        tree=options["tree"],
        cut=options["where"],
    )
    for note in events.notes:
        click.echo(f"note: {note}", err=True)
    model = make_model(checkpoint, **options)
    try:
        model.fit(events)
    except KeyboardInterrupt:  # the estimator has said what is kept, in one line
        click.get_current_context().exit(INTERRUPTED)
    save(model, output, force=force)
    shutil.rmtree(checkpoint, ignore_errors=True)
    click.echo(_summary(model, events, output))


def make_model(
    checkpoint: Path,
    *,
    learner: str,
    cascade: str,
    trees: int | None,
    utility: str,
    b_reg: float | None,
    held_out: float,
    negative_weights: str,
    seed: int,
    jobs: int | None,
    **_: Any,
) -> Any:
    """Make the estimator that the options ask for."""
    from fivesigma import CascadeClassifier, GrownCascadeClassifier
    from fivesigma._extras import installed

    if learner == "auto":
        learner = next((name for name in ("xgboost", "lightgbm") if installed(name)), "histogram")
    shared: dict[str, Any] = {
        "utility": utility,
        "b_reg": b_reg,
        "cv": held_out,
        "negative_weights": negative_weights,
        "random_state": seed,
        "n_jobs": jobs,
        "checkpoint": str(checkpoint),
        "verbose": int(sys.stderr.isatty()),
    }
    n_trees = TREES[cascade] if trees is None else trees
    if cascade == "retrained":
        return CascadeClassifier(_learner(learner, n_trees), **shared)
    if learner == "histogram":
        raise InputError(f"--cascade {cascade} grows trees with xgboost or lightgbm, not with histogram; use retrained")
    return GrownCascadeClassifier(learner, n_trees=n_trees, cascade=cascade == "grown", **shared)


def _learner(name: str, n_trees: int) -> Any:
    """Return a classifier to retrain."""
    from fivesigma._extras import need

    if name == "xgboost":
        return need("xgboost").XGBClassifier(n_estimators=n_trees, learning_rate=0.1, max_depth=6)
    if name == "lightgbm":
        return need("lightgbm").LGBMClassifier(n_estimators=n_trees, learning_rate=0.1, verbosity=-1)
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=n_trees, early_stopping=False)


def _summary(model: Any, events: Any, output: Path) -> str:
    last = model.history_[-1]
    u = "" if last.u is None else f", last u {last.u:.5g}"
    return "\n".join(
        [
            repr(events),
            f"{type(model).__name__}: {len(model.history_)} rounds{u}, {model.utility_!r}",
            f"cut {model.cut_:.6g} keeps {model.selected_fraction_:.2%} of the held-out events, which chose it",
            "these events chose cut and u: quote the significance of others",
            f"model in {output}",
        ]
    )
