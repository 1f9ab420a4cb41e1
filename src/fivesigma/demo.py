"""The demo: simulated events, a plain model and a cascade with equal budget, and an honest comparison."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

import fivesigma
from fivesigma import plot
from fivesigma._tools.extras import installed, need
from fivesigma._types import Array, BoolArray
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


class DemoModel(NamedTuple):
    """A model, the time it took, and what it says of the test events."""

    name: str
    model: GrownCascadeClassifier
    seconds: float
    probability: Array

    @property
    def selected(self) -> BoolArray:
        """Test events above the model's cut."""
        return self.probability >= self.model.cut_


def run_demo(
    folder: Path, *, n_events: int = 100_000, n_trees: int = 30, random_state: int = 0, n_jobs: int | None = None
) -> Paired:
    """Simulate, train, compare, write."""
    _check_folder(folder)
    console = Console(markup=False, highlight=False)
    # Where bars are not seen, or not beside the results, a line says what is under way.
    piped = not (sys.stdout.isatty() and sys.stderr.isatty())

    def step(what: str) -> None:
        if piped:
            console.print(f"[{time.perf_counter() - start:.0f} s] {what}", soft_wrap=True)
            sys.stdout.flush()

    start = time.perf_counter()
    step(f"simulating {n_events:,} events")
    events = make_htautau(n_events, random_state=random_state)
    train, test = events.split(0.5, random_state=random_state)
    console.print(
        f"{len(events):,} simulated events (a toy of H → ττ): half to train on, of which a quarter is held out to "
        "drive the cascade and tune the cuts, and half to test on and for nothing else."
    )
    library = next((name for name in ("xgboost", "lightgbm") if installed(name)), "xgboost")
    shared: dict[str, Any] = {
        "n_trees": n_trees,
        "b_reg": B_REG,
        "random_state": random_state,
        "n_jobs": n_jobs,
        "verbose": int(sys.stderr.isatty()),
    }
    trained = []
    for name, words in (("plain", "the plain model"), ("cascade", "the cascade")):
        step(f"training {words}: {n_trees} {library} trees on {len(train):,} events")
        trained.append(_fit(name, GrownCascadeClassifier(library, cascade=name == "cascade", **shared), train, test))
    plain, cascade = trained
    step(f"comparing both on {len(test):,} test events")
    utility = AMS2(b_reg=B_REG)
    result = paired_difference(plain.selected, cascade.selected, test.is_signal, test.weight, utility)
    console.print(_table((plain, cascade), result, test.is_signal, test.weight))
    console.print(compare_models(result))
    console.print("The default of 30 trees was chosen because a cascade gains with few; with 200 it gains nothing.")
    step("making the report")
    again = ["fivesigma", "demo", "-o", str(folder), "--events", str(n_events), "--trees", str(n_trees)]
    again += ["--seed", str(random_state), *([] if n_jobs in (None, -1) else ["--jobs", str(n_jobs)])]
    page = fivesigma.report(cascade.model, test, baseline=plain.model, trained_on=train, command=shlex.join(again))
    _write(folder, cascade, test, page)
    console.print(f"Model, scores of the test events and figure of the cascade in {folder}/. Open the report:")
    console.print(f"{(folder / 'report.html').resolve()}", soft_wrap=True)
    console.print(f"{time.perf_counter() - start:.0f} s in all.")
    return result


def _fit(name: str, model: GrownCascadeClassifier, train: Events, test: Events) -> DemoModel:
    """Train a model and score the test events."""
    start = time.perf_counter()
    model.fit(train)
    seconds = time.perf_counter() - start
    return DemoModel(name, model, seconds, model.predict_proba(test)[:, 1])


def _table(trained: tuple[DemoModel, DemoModel], result: Paired, signal: BoolArray, weight: Array) -> Table:
    """Side by side: significance on the test events, cut, yields, time."""
    model = trained[0].model
    title = f"{model.n_trees} {model.library} trees each, AMS2 with b_reg = {B_REG:g}, test events only"
    out = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    out.add_column("model")
    for heading in ("significance [68 %]", "cut", "kept", "s", "b", "time"):
        out.add_column(heading, justify="right", no_wrap=True)
    values = ((result.first, result.first_interval), (result.second, result.second_interval))
    for each, (z, interval) in zip(trained, values, strict=True):
        kept = each.selected
        s, b = signal_and_background(weight, signal, kept)
        out.add_row(
            each.name,
            f"{z:.3f} {_interval(interval)}",
            f"{each.model.cut_:.4f}",
            f"{kept.mean():.1%}",
            f"{s:.1f}",
            f"{b:.0f}",
            f"{each.seconds:.1f} s",
        )
    out.add_row("difference", f"{result.difference:+.3f} {_interval(result.difference_interval, '+')}")
    return out


def compare_models(result: Paired) -> str:
    """What may be concluded, and what not."""
    verdict = result.ahead("the plain model", "the cascade")
    interval = _interval(result.difference_interval, "+")
    return (
        f"Paired difference {result.difference:+.3f}, 68 % interval {interval}: {verdict}. The "
        "intervals hold the statistics of the test events alone; another training sample would move both models."
    )


def _interval(interval: tuple[float, float], sign: str = "") -> str:
    return f"[{interval[0]:{sign}.3f}, {interval[1]:{sign}.3f}]"


def _check_folder(folder: Path) -> None:
    """Refuse to replace what no demo has written."""
    if not folder.parent.is_dir():
        raise InputError(f"there is no folder {folder.parent} to write {folder.name} to")
    if folder.exists() and not (folder / MARK).exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder} is there already and is not of an earlier demo; name another with -o")


def _write(folder: Path, cascade: DemoModel, test: Events, page: Report) -> None:
    """Write beside, then rename."""
    beside = folder.with_name(f".{folder.name}-new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        (beside / MARK).touch()
        save(cascade.model, beside / "model")
        ScoredEvents.of(cascade.model, test).write(beside / "scores.csv")
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
