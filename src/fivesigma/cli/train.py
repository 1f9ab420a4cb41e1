"""``fivesigma train``: events in, a saved model out."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fivesigma._tools.extras import BOOSTERS
from fivesigma._tools.files import read_text
from fivesigma.challenge import MISSING
from fivesigma.cli.options import (
    INTERRUPTED,
    column_or_none,
    force_option,
    jobs_option,
    keep_option,
    number_or_none,
    samples_options,
    signal_option,
    source_options,
    tree_option,
    utility_options,
    where_option,
)
from fivesigma.cli.systematics import (
    Asked,
    check_processes,
    narrow_source,
    of_patterns,
    parsed,
    split_patterns,
    systematic_option,
    variations,
)
from fivesigma.errors import InputError, did_you_mean, shortened

# Those of `fivesigma.estimators.make`, which is too heavy for help.
MODELS = ("auto", "plain", "grown", "retrained", "decomposed", "profiled")
_CHOICES = ("auto", *BOOSTERS, "histogram")
_NOT_IN_A_FILE = ("config", "resume", "force", "help")
FOLDS, HELD_OUT = 5, 0.25  # by default: folds by a column, and the fraction that a model on files holds out


def _read_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Make the keys of a TOML file the defaults of the options of the same name."""
    if path is None:
        return
    import tomllib

    try:
        content = tomllib.loads(read_text(path))
    except (OSError, UnicodeDecodeError) as err:
        raise InputError(f"{path} cannot be read: {getattr(err, 'strerror', None) or err}") from err
    except (tomllib.TOMLDecodeError, RecursionError) as err:
        raise InputError(f"{path} is not TOML: {shortened(str(err), 200)}") from err
    options = {
        flag.removeprefix("--"): option
        for option in ctx.command.params
        if isinstance(option, click.Option)
        for flag in option.opts
        if flag.startswith("--") and flag.removeprefix("--") not in _NOT_IN_A_FILE
    }
    defaults: dict[str, Any] = {}
    for key, value in content.items():
        name = key.replace("_", "-")
        if name not in options:
            hint = did_you_mean(name, options) or f"; known are {', '.join(options)}"
            raise InputError(f"{path} has the unknown key {key!r}{hint}")
        option = options[name]
        if isinstance(value, bool | dict) or (isinstance(value, list) and not option.multiple):
            raise InputError(f"{path}: {key} cannot be {shortened(repr(value))}")
        defaults[str(option.name)] = [value] if option.multiple and not isinstance(value, list) else value
    ctx.default_map = defaults


@click.command(epilog="Example: fivesigma train events.parquet -o model --features 'PRI_*' --b-reg 10 --trees 300")
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="Save the model here, as a folder or as a .zip file.",
)
@click.option("--model", type=click.Choice(MODELS), default="auto", show_default=True,
              help="Blend a plain model, a cascade and a decomposed one as held-out events advise; or train one of "
              "them: the plain model, a booster that is grown or retrained along the cascade, or an unweighted one "
              "with a model of the weights; or the score that knows the systematics, which --systematic makes the "
              "default.")  # fmt: skip
@systematic_option
@click.option("--goal", type=click.Choice(["discovery", "measurement"]), default="discovery", show_default=True,
              help="With --systematic: the score for the largest significance, or for the smallest uncertainty of the "
              "signal strength.")  # fmt: skip
@click.option("--library", type=click.Choice(_CHOICES), default="auto", show_default=True,
              help="Train with this library; histogram is that of scikit-learn.")  # fmt: skip
@click.option("--fast", is_flag=True,
              help="With --model auto: train the plain model on the folds only, in a third of the time or "
              "less.")  # fmt: skip
@click.option("--no-net", is_flag=True,
              help="With --model auto: train no net, though torch is installed.")  # fmt: skip
@click.option("--trees", type=click.IntRange(1), metavar="N",
              help="Train this many trees; by default auto finds the number, plain and grown models have 500, and the "
              "others 200.")  # fmt: skip
@utility_options
@click.option("--folds", type=click.IntRange(2), metavar="K",
              help="Train on each K - 1 of K folds, so that all events choose u, blend and cut; by default 5 with "
              "--model auto.")  # fmt: skip
@click.option("--by", metavar="COLUMN",
              help="Make the folds by this column of integers, such as an event number, modulo K; each event is then "
              "scored by the fits that did not see its fold.")  # fmt: skip
@click.option("--held-out", type=click.FloatRange(0, 1, min_open=True, max_open=True), metavar="FRACTION",
              help="Hold out this fraction of the events once; by default 0.25 where there are no folds.")  # fmt: skip
@click.option("--features", multiple=True, metavar="NAME",
              help="Use this column, the number columns that match this pattern, or a definition such as "
              "'HT = sum(jet_pt)' as features; may be repeated. By default all number columns without another role are "
              "features.")  # fmt: skip
@click.option("--label", default="Label", show_default=True, metavar="COLUMN",
              help="Read the labels of signal and background from this column.")  # fmt: skip
@signal_option
@samples_options
@keep_option
@click.option("--weight", default="Weight", show_default=True, metavar="COLUMN",
              help="Read the expected yield of each event from this column, or from an expression of columns such as "
              "'mcWeight * sf'; none means that each is one.")  # fmt: skip
@click.option("--process", metavar="COLUMN",
              help="Read from this column what each event was simulated as; splits are stratified by it.")  # fmt: skip
@click.option("--missing", type=number_or_none, default=f"{MISSING:g}", show_default=True, metavar="CODE",
              help="Read this number as a missing value; none if no number means that.")  # fmt: skip
@tree_option
@where_option
@click.option("--negative-weights", type=click.Choice(["error", "zero", "abs"]), default="error", show_default=True,
              help="Refuse negative weights, or show the learner zero or their absolute value instead.")  # fmt: skip
@click.option("--memory", type=click.Choice(["all", "bins", "disk"]), default="all", show_default=True,
              help="Hold all features in memory, or their bins alone, or keep the bins in files that are read for each "
              "tree; bins and disk read FILE... chunk by chunk and grow one booster with xgboost.")  # fmt: skip
@click.option("--cache", type=click.Path(path_type=Path), metavar="FOLDER",
              help="With --memory disk: make this folder for the files, and remove it in the end; by default a "
              "temporary one.")  # fmt: skip
@click.option("--dask", metavar="ADDRESS|N",
              help="Grow one booster with xgboost on the workers of the Dask scheduler at this address, such as "
              "tcp://host:8786, or on this many processes of this machine.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed the split and the learner.")
@jobs_option
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), is_eager=True, expose_value=False,
              callback=_read_config, metavar="TOML", help="File with the same keys as these options.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Resume a run that was interrupted.")
@force_option
def train(files: tuple[str, ...], output: Path, resume: bool, force: bool, **options: Any) -> None:
    """Train on events in FILE... (CSV, Parquet or ROOT) and save the model.

    Until it is done, the run is kept in MODEL.checkpoint, every 50 trees or after every round or fit; --resume resumes
    it.
    """
    from fivesigma import save
    from fivesigma.datasets import EventStream, load_events
    from fivesigma.store.archive import check_target

    check_target(output, force=force)
    checkpoint = output.with_name(f"{output.name}.checkpoint")
    if checkpoint.exists() and not resume:
        if not force:
            raise InputError(
                f"{checkpoint} holds a run that was interrupted: add --resume to resume it or --force to start anew"
            )
        shutil.rmtree(checkpoint)
    patterns, texts = split_patterns(options.pop("systematics"))
    asked = parsed(texts)
    check_processes(asked, from_samples=bool(options["samples"]))
    if (asked or patterns) and options["model"] not in ("auto", "profiled"):
        raise InputError(f"--model {options['model']} does not know systematics: leave --systematic or --model out")
    if asked or patterns:
        options["model"] = "profiled"
    elif options["goal"] != "discovery" and options["model"] != "profiled":
        raise InputError(f"--goal {options['goal']} needs --systematic")
    by, in_memory = options["by"], options["memory"] == "all" and options["dask"] is None
    if not in_memory:
        _refuse_with_memory(**options)
    source = source_options(
        files,
        samples=options["samples"],
        signal=options["signal"],
        luminosity=options["luminosity"],
        cross_sections=options["cross_sections"],
        sums_of_weights=options["sums_of_weights"],
    )
    read: Any = load_events if in_memory else EventStream
    columns: dict[str, Any] = {
        "features": list(options["features"]) or None,
        "label": options["label"],
        "weight": column_or_none(options["weight"]),
        "process": options["process"],
        "missing": column_or_none(options["missing"]),
        "keep": tuple(dict.fromkeys((*options["keep"], *([] if by is None else [by])))),
        "tree": options["tree"],
        "cut": options["where"],
    }
    events = read(**source, **columns, **({} if in_memory else {"ids": None}))
    for note in events.notes if in_memory else ():
        click.echo(f"note: {note}", err=True)
    try:
        with _cluster(options.pop("dask")) as client:
            model = _made_model(checkpoint, client=client, **options)
            varied = _varied(asked, patterns, events, source, columns) if asked or patterns else {}
            model.fit(events, **varied)
    except KeyboardInterrupt:  # the estimator has said what is kept, in one line
        click.get_current_context().exit(INTERRUPTED)
    for note in () if in_memory else events.notes:  # known when all was read
        click.echo(f"note: {note}", err=True)
    save(model, output, force=force)
    shutil.rmtree(checkpoint, ignore_errors=True)
    if not options["features"]:
        click.echo(f"features: {', '.join(events.feature_names)}")
    click.echo(_summary(model, events, output))


def _varied(
    asked: list[Asked], patterns: list[str], events: Any, source: dict[str, Any], columns: dict[str, Any]
) -> dict[str, Any]:
    """Systematics for `fit`, from files that are read as those of the nominal events."""
    import numpy as np

    from fivesigma import ScoredEvents
    from fivesigma.datasets import load_events

    def read(file: str, process: str) -> Any:
        narrowed = narrow_source(source, {process: (file,)} if process else (file,))
        return load_events(narrowed.pop("path"), **{"signal": events.signal, **narrowed, **columns})

    nominal = ScoredEvents(np.zeros(len(events)), events.is_signal, events.weight, process=events.process)
    found = of_patterns(patterns, source["path"], events) | (variations(asked, nominal, read) or {})
    return {"systematics": found}


@contextmanager
def _cluster(where: str | None) -> Iterator[Any]:
    """The cluster that was asked for, if one was."""
    if where is None:
        yield None
        return
    from fivesigma.dask.launch import connect, local_cluster

    with local_cluster(int(where)) if where.isdigit() else connect(where) as client:
        yield client


def _refuse_with_memory(
    *,
    dask: str | None,
    cache: Path | None,
    memory: str,
    model: str,
    library: str,
    folds: int | None,
    by: str | None,
    fast: bool,
    **_: Any,
) -> None:
    """Refuse options that need all events in memory."""
    given = {
        "--systematic": model == "profiled",
        f"--model {model}": model not in ("auto", "plain", "grown"),
        f"--library {library}": library not in ("auto", "xgboost"),
        "--folds": folds is not None,
        "--by": by is not None,
        "--fast": fast,
    }
    for name in (name for name, there in given.items() if there):
        raise InputError(
            f"{name} needs all events in memory; leave it out with {'--dask' if dask else f'--memory {memory}'}"
        )
    if dask is not None and cache is not None:
        raise InputError("--cache is a folder of one machine; workers of --dask use their own: leave it out")


def _made_model(
    checkpoint: Path,
    *,
    model: str,
    goal: str,
    library: str,
    trees: int | None,
    utility: str,
    b_reg: float | None,
    fast: bool,
    no_net: bool,
    folds: int | None,
    held_out: float | None,
    by: str | None,
    negative_weights: str,
    seed: int,
    jobs: int | None,
    memory: str = "all",
    cache: Path | None = None,
    client: Any = None,
    **_: Any,
) -> Any:
    """Make the estimator that the options ask for."""
    from fivesigma.estimators.make import make_model

    if folds is not None and held_out is not None:
        raise InputError("--folds and --held-out exclude each other: give one of them")
    if by is not None and held_out is not None:
        raise InputError("--by makes folds, and --held-out has none: give --folds with it")
    for name, given in (("--fast", fast), ("--no-net", no_net)):
        if given and model != "auto":
            raise InputError(f"{name} is for --model auto, not for --model {model}")
    shared: dict[str, Any] = {
        "utility": utility,
        "b_reg": b_reg,
        "cv": folds or held_out or (None if by is None else FOLDS),
        "negative_weights": negative_weights,
        "random_state": seed,
        "n_jobs": jobs,
        "checkpoint": str(checkpoint),
        "verbose": int(sys.stderr.isatty()),
    }
    if memory == "all" and cache is None and client is None:
        if model == "auto":
            shared |= {"fast": fast, "net": False if no_net else "auto"}
        if model == "profiled":
            shared["goal"] = goal
        return make_model(model, library=library, n_trees=trees, by=by, **shared)
    # A stream of events is for one booster.
    shared |= {"memory": memory, "cache": None if cache is None else str(cache), "cv": held_out or HELD_OUT}
    if client is None:
        return make_model("plain" if model == "plain" else "grown", library="xgboost", n_trees=trees, **shared)
    from fivesigma.dask import GrownCascadeClassifier

    n_trees = {} if trees is None else {"n_trees": trees}
    shared["n_jobs"] = None if jobs == -1 else jobs  # without a number each worker has as many as Dask gave it
    return GrownCascadeClassifier(client, cascade=model != "plain", **n_trees, **shared)


def _summary(model: Any, events: Any, output: Path) -> str:
    from fivesigma import Events

    made, chosen = getattr(model, "choice_", None), "pulls" if hasattr(model, "pulls_") else "u"
    if made is None:
        last = model.history_[-1]
        made = f"{len(model.history_)} rounds" + ("" if last.u is None else f", last u {last.u:.5g}")
    # Notes were printed before the training.
    shown: Any = replace(events, notes=()) if isinstance(events, Events) else events
    return "\n".join(
        [
            repr(shown),
            f"{type(model).__name__}: {made}, {model.utility_!r}",
            f"cut {model.cut_:.6g} keeps {model.selected_fraction_:.2%} of the held-out events, which chose it",
            f"these events chose cut and {chosen}: quote the significance of others",
            f"model in {output}",
        ]
    )
