"""The demo: simulated events, a plain model and a cascade with equal budget, and an honest comparison."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import fivesigma
from fivesigma import plot
from fivesigma._tools.extras import installed, need
from fivesigma._tools.files import refuse_special
from fivesigma._tools.summary import Summary
from fivesigma._types import BoolArray
from fivesigma.challenge import B_REG
from fivesigma.cut.bootstrap import Paired, paired_difference
from fivesigma.datasets import Events, make_htautau
from fivesigma.errors import InputError
from fivesigma.estimators.grown import GrownCascadeClassifier
from fivesigma.reporting import Report
from fivesigma.scored.scored_events import ScoredEvents
from fivesigma.significance import AMS2
from fivesigma.store import save
from fivesigma.yields import signal_and_background

__all__ = ["run_demo"]

MARK = ".fivesigma-demo"  # what shows that a folder may be replaced


def run_demo(
    folder: Path, *, n_events: int = 100_000, n_trees: int = 30, random_state: int = 0, n_jobs: int | None = None
) -> Paired:
    """Simulate, train, compare, write."""
    refuse_special(folder)
    if folder.exists() and not (folder / MARK).exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder} is there already and is not of an earlier demo; name another with -o")
    # Where bars are not seen, or not beside the results, a line says what is under way.
    piped = not (sys.stdout.isatty() and sys.stderr.isatty())

    def step(what: str) -> None:
        if piped:
            print(f"[{time.perf_counter() - start:.0f} s] {what}", flush=True)

    start = time.perf_counter()
    step(f"simulating {n_events:,} events")
    events = make_htautau(n_events, random_state=random_state)
    train, test = events.split(0.5, random_state=random_state)
    print(
        f"{len(events):,} simulated events (a toy of H → ττ): half to train on, of which a quarter is held out to\n"
        "drive the cascade and tune the cuts, and half to test on and for nothing else."
    )
    library = next((name for name in ("xgboost", "lightgbm") if installed(name)), "xgboost")
    shared: dict[str, Any] = {"n_trees": n_trees, "b_reg": B_REG, "random_state": random_state, "n_jobs": n_jobs}
    models: list[GrownCascadeClassifier] = []
    kept: list[BoolArray] = []
    lines: list[tuple[str, ...]] = []  # what the table says of each after its significance
    for words, cascade in (("the plain model", False), ("the cascade", True)):
        step(f"training {words}: {n_trees} {library} trees on {len(train):,} events")
        begun = time.perf_counter()
        models.append(GrownCascadeClassifier(library, cascade=cascade, verbose=int(sys.stderr.isatty()), **shared))
        models[-1].fit(train)
        took = time.perf_counter() - begun
        kept.append(models[-1].predict_proba(test)[:, 1] >= models[-1].cut_)
        s, b = signal_and_background(test.weight, test.is_signal, kept[-1])
        lines.append((f"{models[-1].cut_:.4f}", f"{kept[-1].mean():.1%}", f"{s:.1f}", f"{b:.0f}", f"{took:.1f} s"))
    step(f"comparing both on {len(test):,} test events")
    result = paired_difference(kept[0], kept[1], test.is_signal, test.weight, AMS2(b_reg=B_REG))
    rows = [
        ("plain", f"{result.first:.3f} {_interval(result.first_interval)}", *lines[0]),
        ("cascade", f"{result.second:.3f} {_interval(result.second_interval)}", *lines[1]),
        ("difference", f"{result.difference:+.3f} {_interval(result.difference_interval, '+')}", *[""] * 5),
    ]
    title = f"\n{n_trees} {library} trees each, AMS2 with b_reg = {B_REG:g}, test events only"
    head = ("model", "significance [68 %]", "cut", "kept", "s", "b", "time")
    print(Summary(title, head, rows, ["", compare_models(result)]).text())
    print("The default of 30 trees was chosen because a cascade gains with few; with 200 it gains nothing.")
    step("making the report")
    again = ["fivesigma", "demo", "-o", str(folder), "--events", str(n_events), "--trees", str(n_trees)]
    again += ["--seed", str(random_state), *([] if n_jobs in (None, -1) else ["--jobs", str(n_jobs)])]
    page = fivesigma.report(models[1], test, baseline=models[0], trained_on=train, command=shlex.join(again))
    _write(folder, models[1], test, page)
    print(f"Model, scores of the test events and figure of the cascade in {folder}/. Open the report:")
    print((folder / "report.html").resolve())
    print(f"{time.perf_counter() - start:.0f} s in all.")
    return result


def compare_models(result: Paired) -> str:
    """What may be concluded, and what not."""
    verdict = result.ahead("the plain model", "the cascade")
    interval = _interval(result.difference_interval, "+")
    return (
        f"Paired difference {result.difference:+.3f}, 68 % interval {interval}: {verdict}.\n"
        "The intervals hold the statistics of the test events alone; another training sample would move both models."
    )


def _interval(interval: tuple[float, float], sign: str = "") -> str:
    return f"[{interval[0]:{sign}.3f}, {interval[1]:{sign}.3f}]"


def _write(folder: Path, model: GrownCascadeClassifier, test: Events, page: Report) -> None:
    """Write beside, then rename."""
    beside = folder.with_name(f".{folder.name}-new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        (beside / MARK).touch()
        save(model, beside / "model")
        ScoredEvents.of(model, test).write(beside / "scores.csv")
        page.write(beside / "report.html")
        figure = need("matplotlib.figure").Figure(figsize=(14, 4.5), layout="constrained")
        for draw, ax in zip((plot.rounds, plot.u_path, plot.progress), figure.subplots(1, 3), strict=True):
            draw(page, ax)
        figure.savefig(beside / "cascade.png", dpi=150)
        if folder.exists():
            shutil.rmtree(folder)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
