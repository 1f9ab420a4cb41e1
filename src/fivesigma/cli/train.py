"""``fivesigma train``: events in, a saved model out."""

from __future__ import annotations

import shutil
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

import fivesigma
from fivesigma._tools.extras import BOOSTERS
from fivesigma._tools.files import read_text
from fivesigma.challenge import MISSING
from fivesigma.cli.options import (
    INTERRUPTED,
    PATH,
    NumberOr,
    column_or_none,
    event_files,
    force_option,
    jobs_option,
    print_notes,
    seed_option,
    tree_option,
    utility_options,
)
from fivesigma.cli.systematics import Asked, check_processes, of_events, systematic_option
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
    options = {p.opts[-1].removeprefix("--"): p for p in ctx.command.params if isinstance(p, click.Option)}
    options = {name: option for name, option in options.items() if name not in _NOT_IN_A_FILE}
    ctx.default_map = {}
    for key, value in content.items():
        name = key.replace("_", "-")
        if name not in options:
            hint = did_you_mean(name, options) or f"; known are {', '.join(options)}"
            raise InputError(f"{path} has the unknown key {key!r}{hint}")
        option = options[name]
        if isinstance(value, bool | dict) or (isinstance(value, list) and not option.multiple):
            raise InputError(f"{path}: {key} cannot be {shortened(repr(value))}")
        ctx.default_map[str(option.name)] = [value] if option.multiple and not isinstance(value, list) else value


@click.command(epilog="Example: fivesigma train events.parquet -o model --features 'PRI_*' --b-reg 10 --trees 300")
@click.option("-o", "--output", required=True, type=PATH, metavar="MODEL",
              help="Save the model here, as a folder or as a .zip file.")  # fmt: skip
@click.option("--model", type=click.Choice(MODELS), default="auto",
              help="Blend a plain model, a cascade and a decomposed one chosen on held-out events; or train one of "
              "them: the plain model, a booster that is grown or retrained along the cascade, or an unweighted one "
              "with a model of the weights; or the score that knows the systematics, which --systematic makes the "
              "default.")  # fmt: skip
@systematic_option
@click.option("--goal", type=click.Choice(["discovery", "measurement"]), default="discovery",
              help="With --systematic: the score for the largest significance, or for the smallest uncertainty of the "
              "signal strength.")  # fmt: skip
@click.option("--library", type=click.Choice(_CHOICES), default="auto",
              help="Train with this library; histogram is that of scikit-learn.")  # fmt: skip
@click.option("--fast", is_flag=True,
              help="With --model auto: train the plain model on the folds only, in a third of the time or "
              "less.")  # fmt: skip
@click.option("--no-net", is_flag=True,
              help="With --model auto: train no net, though torch is installed.")  # fmt: skip
@click.option("--trees", "n_trees", type=click.IntRange(1), metavar="N",
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
@click.option("--label", default="Label", metavar="COLUMN",
              help="Read the labels of signal and background from this column.")  # fmt: skip
@event_files("[FILE...]", "Take this label as signal; needed if it is not a known one such as s.")
@click.option("--keep", multiple=True, metavar="COLUMN",
              help="Keep this column in its own type, not as a feature, such as an event number; may be "
              "repeated.")  # fmt: skip
@click.option("--weight", multiple=True, default=("Weight",), metavar="COLUMN",
              help="Read the expected yield of each event from this column, or from an expression of columns such as "
              "'mcWeight * sf'; none means that each is one. PROCESS=COLUMN for each process of --sample.")  # fmt: skip
@click.option("--process", metavar="COLUMN",
              help="Read from this column what each event was simulated as; splits are stratified by it.")  # fmt: skip
@click.option("--missing", type=NumberOr("none"), default=f"{MISSING:g}", metavar="CODE",
              help="Read this number as a missing value; none if no number means that.")  # fmt: skip
@tree_option
@click.option("--where", "cut", multiple=True, metavar="CUT",
              help='Read only the events that pass this condition, such as "PRI_jet_num >= 2". PROCESS=CUT for each '
              "process of --sample.")  # fmt: skip
@click.option("--negative-weights", type=click.Choice(["error", "zero", "abs"]), default="error",
              help="Refuse negative weights, or show the learner zero or their absolute value instead.")  # fmt: skip
@click.option("--memory", type=click.Choice(["all", "bins", "disk"]), default="all",
              help="Hold all features in memory, or their bins alone, or keep the bins in files that are read for each "
              "tree; bins and disk read FILE... chunk by chunk and grow one booster with xgboost.")  # fmt: skip
@click.option("--cache", type=PATH, metavar="FOLDER",
              help="With --memory disk: make this folder for the files, and remove it in the end; by default a "
              "temporary one.")  # fmt: skip
@click.option("--dask", metavar="ADDRESS|N",
              help="Grow one booster with xgboost on the workers of the Dask scheduler at this address, such as "
              "tcp://host:8786, or on this many processes of this machine.")  # fmt: skip
@seed_option
@jobs_option
@click.option("--config", type=click.Path(dir_okay=False, path_type=Path), is_eager=True, expose_value=False,
              callback=_read_config, metavar="TOML",
              help="Read options from this file, which has their names as keys.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Resume a run that was interrupted.")
@force_option
def train(source: dict[str, Any], output: Path, systematics: Asked, resume: bool, force: bool, **options: Any) -> None:
    """Train a model on events and save it.

    FILE... are CSV, Parquet or ROOT files of labelled and weighted events. Until it is done, the run is kept in
    MODEL.checkpoint, every 50 trees or after every round or fit; --resume resumes it.
    """
    from fivesigma.datasets import EventStream
    from fivesigma.store.archive import check_target

    check_target(output, force=force)
    checkpoint = output.with_name(f"{output.name}.checkpoint")
    if checkpoint.exists() and not resume:
        if not force:
            raise InputError(
                f"{checkpoint} holds a run that was interrupted: add --resume to resume it or --force to start anew"
            )
        shutil.rmtree(checkpoint)
    check_processes(systematics, source)
    asked = SimpleNamespace(**options)
    if systematics and asked.model not in ("auto", "profiled"):
        raise InputError(f"--model {asked.model} does not know systematics: leave --systematic or --model out")
    if systematics:
        asked.model = "profiled"
    elif asked.goal != "discovery" and asked.model != "profiled":
        raise InputError(f"--goal {asked.goal} needs --systematic")
    in_memory = asked.memory == "all" and asked.dask is None
    if not in_memory:
        _refuse_with_memory(asked)
    columns = {name: options[name] for name in ("label", "process", "tree", "cut")}
    columns |= {name: column_or_none(options[name]) for name in ("weight", "missing")}
    columns["features"] = list(asked.features) or None
    columns["keep"] = tuple(dict.fromkeys((*asked.keep, *([] if asked.by is None else [asked.by]))))
    read: Any = fivesigma.load_events if in_memory else EventStream
    events = read(**columns | source, **({} if in_memory else {"ids": None}))
    if in_memory:
        print_notes(events.notes)

    def read_varied(files: dict[str, Any]) -> Any:
        return read(**{"signal": events.signal, **columns, **files})

    try:
        with _cluster(asked.dask) as client:
            model = _make_model(asked, checkpoint, client)
            varied = {"systematics": of_events(systematics, source, events, read_varied)} if systematics else {}
            model.fit(events, **varied)
    except KeyboardInterrupt:  # the estimator has said what is kept, in one line
        click.get_current_context().exit(INTERRUPTED)
    if not in_memory:
        print_notes(events.notes)  # known when all was read
    fivesigma.save(model, output, force=force)
    shutil.rmtree(checkpoint, ignore_errors=True)
    if not asked.features:
        click.echo(f"features: {', '.join(events.feature_names)}")
    click.echo(_summary(model, events, output))


def _cluster(where: str | None) -> AbstractContextManager[Any]:
    if where is None:
        return nullcontext()
    from fivesigma.dask.launch import connect, local_cluster

    return local_cluster(int(where)) if where.isdigit() else connect(where)


def _refuse_with_memory(asked: SimpleNamespace) -> None:
    given = {
        "--systematic": asked.model == "profiled",
        f"--model {asked.model}": asked.model not in ("auto", "plain", "grown"),
        f"--library {asked.library}": asked.library not in ("auto", "xgboost"),
        "--folds": asked.folds is not None,
        "--by": asked.by is not None,
        "--fast": asked.fast,
    }
    for name in (name for name, there in given.items() if there):
        way = "--dask" if asked.dask else f"--memory {asked.memory}"
        raise InputError(f"{name} needs all events in memory; leave it out with {way}")
    if asked.dask is not None and asked.cache is not None:
        raise InputError("--cache is a folder of one machine; workers of --dask use their own: leave it out")


def _make_model(asked: SimpleNamespace, checkpoint: Path, client: Any) -> Any:
    from fivesigma.estimators.make import make_model

    if asked.folds is not None and asked.held_out is not None:
        raise InputError("--folds and --held-out exclude each other: give one of them")
    if asked.by is not None and asked.held_out is not None:
        raise InputError("--by makes folds, and --held-out has none: give --folds with it")
    for name, given in (("--fast", asked.fast), ("--no-net", asked.no_net)):
        if given and asked.model != "auto":
            raise InputError(f"{name} is for --model auto, not for --model {asked.model}")
    names = ("utility", "b_reg", "n_trees", "negative_weights", "random_state", "n_jobs")
    shared = {name: value for name, value in vars(asked).items() if name in names}
    shared |= {"checkpoint": str(checkpoint), "verbose": int(sys.stderr.isatty())}
    if asked.memory == "all" and asked.cache is None and client is None:
        cv = asked.folds or asked.held_out or (None if asked.by is None else FOLDS)
        if asked.model == "auto":
            shared |= {"fast": asked.fast, "net": False if asked.no_net else "auto"}
        if asked.model == "profiled":
            shared["goal"] = asked.goal
        return make_model(asked.model, library=asked.library, by=asked.by, cv=cv, **shared)
    # A stream of events is for one booster.
    kind = "plain" if asked.model == "plain" else "grown"
    shared |= {"memory": asked.memory, "cache": asked.cache and str(asked.cache), "cv": asked.held_out or HELD_OUT}
    if client is None:
        return make_model(kind, library="xgboost", **shared)
    from fivesigma.dask import GrownCascadeClassifier

    if shared["n_jobs"] == -1:
        del shared["n_jobs"]  # each worker has as many as Dask gave it
    if shared["n_trees"] is None:
        del shared["n_trees"]
    return GrownCascadeClassifier(client, cascade=kind == "grown", **shared)


def _summary(model: Any, events: Any, output: Path) -> str:
    made, chosen = getattr(model, "choice_", None), "pulls" if hasattr(model, "pulls_") else "u"
    if made is None:
        last = model.history_[-1]
        made = f"{len(model.history_)} rounds" + ("" if last.u is None else f", last u {last.u:.5g}")
    # Notes were printed before the training.
    shown: Any = replace(events, notes=()) if isinstance(events, fivesigma.Events) else events
    return "\n".join(
        [
            repr(shown),
            f"{type(model).__name__}: {made}, {model.utility_!r}",
            f"cut {model.cut_:.6g} keeps {model.selected_fraction_:.2%} of the held-out events, which chose it",
            f"these events chose cut and {chosen}: quote the significance of others",
            f"model in {output}",
        ]
    )
