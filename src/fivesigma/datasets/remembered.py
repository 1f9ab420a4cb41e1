"""Reading other events as the training events of a model were read, but for what is asked otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fivesigma.datasets.columns import BY_PROCESS, Columns, can_be_read
from fivesigma.datasets.expression import Expression, split_definition
from fivesigma.datasets.sources import Paths, Target, find_targets
from fivesigma.errors import InputError


def as_in_training(
    model: Any, path: Paths | Mapping[str, Paths], asked: Mapping[str, Any]
) -> tuple[Columns, tuple[str, ...]]:
    """What to ask of files, so that their events are those that a model was trained for, and notes of what that is.

    Parameters of `load_events` in `asked` are to be otherwise than in training; None says that there is no such thing.
    """
    trained = Columns.of_model(model)
    first = find_targets(next(iter(path.values())) if isinstance(path, Mapping) else path)[0]
    own_tree = trained.tree if first.tree is None and first.name.lower().endswith(".root") else None
    tree = asked.get("tree", own_tree if own_tree is not None and _names_in(first, own_tree) else None)
    names = _names_in(first, tree)
    used: dict[str, Any] = {
        "features": trained.features,
        "missing": trained.missing,
        "tree": tree,
        "keep": tuple(dict.fromkeys((*trained.keep, *asked.get("keep", ())))),
        "cut": trained.cut,
    }
    by_process = isinstance(trained.signal, list | tuple)
    said, notes = [], []
    if isinstance(path, Mapping):
        for name in BY_PROCESS:
            known = getattr(trained, name)
            used[name] = {key: known[key] for key in known if key in path} if isinstance(known, Mapping) else known
        normalised = _normalisation(trained, path, asked)
        used |= normalised
        if by_process:
            used["signal"] = [name for name in trained.signal if name in path]
            said += [] if "signal" in asked else [f"signal {', '.join(used['signal']) or 'none'}"]
            new = [name for name in path if name not in trained.factors]
            if new and "signal" not in asked:
                notes.append(f"Not in training, and taken as background: {', '.join(new)}.")
        if normalised.get("luminosity") is not None and "luminosity" not in asked:
            said.append(f"luminosity {normalised['luminosity']:g}/fb, cross sections and sums of weights")
    else:
        # The usual names are tried, and what the file lacks has no role.
        for role, usual in (("label", "Label"), ("weight", "Weight"), ("process", "Process")):
            known = getattr(trained, role)
            several = isinstance(known, Mapping)  # a weight of each process
            used[role] = known if not several and can_be_read(known, names) else usual if usual in names else None
        if asked.get("label", used["label"]) is not None:
            # Of a model that was trained with files of processes, no label of a file is known.
            used["signal"] = None if by_process else np.asarray(model.classes_).tolist()[1]
        if any(factor != 1.0 for factor in trained.factors.values()):
            notes.append("In training processes were normalised; without processes weights are as they stand.")
    if used["cut"] is not None and "cut" not in asked:
        several = isinstance(used["cut"], Mapping)
        if several and not isinstance(path, Mapping):
            raise InputError("the training had a cut for each process; give {process: files}, or a cut, or cut=None")
        lacking = sorted(Expression(used["cut"], "cut").columns - names) if names and not several else []
        if lacking:
            raise InputError(
                f"the training took the events that pass {used['cut']!r}, and {first.name} has no column "
                f"{lacking[0]!r}; say cut=None or --where none to take all events"
            )
        said.append(f"cut {used['cut']!r}")
    if "weight" not in asked and used["weight"] not in (None, "Weight"):
        said.append(f"weight {used['weight']!r}")
    defined = [text for text in map(split_definition, trained.features or ()) if text is not None]
    said += [f"definitions of {', '.join(name for name, _ in defined)}"] if defined else []
    given = {name: value for name, value in asked.items() if name not in used or name not in _MERGED}
    sentence = [f"As in training: {'; '.join(said)}."] if said else []
    return Columns(**used | given), (*sentence, *notes)


_MERGED = ("keep", "luminosity", "cross_section", "sum_of_weights")


def _normalisation(trained: Columns, path: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Luminosity, cross sections and sums of weights of the processes that are there."""
    if "luminosity" in asked and asked["luminosity"] is None:
        return {"luminosity": None, "cross_section": {}, "sum_of_weights": {}}
    found = {
        name: {key: value for key, value in getattr(trained, name).items() if key in path} | dict(asked.get(name) or {})
        for name in ("cross_section", "sum_of_weights")
    }
    luminosity = asked.get("luminosity", trained.luminosity)
    if "luminosity" not in asked and all(value is None for value in found["cross_section"].values()):
        luminosity = None  # none of the processes that it was for
    return {"luminosity": luminosity, **found}


def _names_in(target: Target, tree: str | None) -> frozenset[str]:
    """Columns of a file; none if it cannot be opened so, of which reading it says why."""
    try:
        return frozenset(target.open(tree).names)
    except InputError:
        return frozenset()
