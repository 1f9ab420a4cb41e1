"""Events as a report sees them: scored, weighted, and which of them are signal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fivesigma._extras import need
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.yields import check_weights, rescale


@dataclass(frozen=True)
class Group:
    """One process, in one class."""

    name: str
    signal: bool
    code: int


@dataclass(frozen=True, eq=False)
class Scored:
    """Scored events.

    Attributes
    ----------
    probability, weight : arrays of shape (n_events,)
        P(signal) and physics weights.
    signal : bool array of shape (n_events,)
    code : int array of shape (n_events,)
        Which of the groups each event belongs to.
    groups : list of Group
        Processes, signal first; signal and background themselves if no processes are known.
    """

    probability: Array
    weight: Array
    signal: BoolArray
    code: IntArray
    groups: list[Group]

    @classmethod
    def of(cls, model: Any, events: Events, yields: tuple[float, float] | None) -> Scored:
        """Score labelled events, and scale each class to its yield if one is given."""
        signal = events.is_signal
        if not signal.any() or signal.all():
            raise InputError("a report needs signal and background events, and one of the two is not there")
        weight = check_weights(events.weight, signal.size)
        if yields is not None:
            weight = rescale(weight, signal, yields)
        code, groups = _groups(events.process, signal)
        return cls(probability_of(model, events), weight, signal, code, groups)


def probability_of(model: Any, events: Events) -> Array:
    """P(signal) of events whose columns are brought into the order in which the model was trained."""
    if not hasattr(model, "cut_"):
        raise InputError(
            f"a {type(model).__name__} without a cut cannot be reported on; fit a model of fivesigma first"
        )
    fitted = getattr(model, "feature_names_in_", None)
    trained = fitted if fitted is not None else getattr(model, "columns_", {}).get("features")
    X = events.X
    if trained is not None and list(trained) != list(events.feature_names):
        place = {name: j for j, name in enumerate(events.feature_names)}
        absent = [name for name in trained if name not in place]
        if absent:
            raise InputError(f"the events have no column {absent[0]!r}, which the model was trained with")
        X = X[:, [place[name] for name in trained]]
    if X.shape[1] != model.n_features_in_:
        raise InputError(
            f"the events have {X.shape[1]} features, and the model was trained with {model.n_features_in_}"
        )
    table = X if fitted is None else need("polars").DataFrame(X, schema=list(map(str, fitted)))
    return np.asarray(model.predict_proba(table)[:, 1])


def _groups(process: AnyArray | None, signal: BoolArray) -> tuple[IntArray, list[Group]]:
    """Number the processes within each class; a name that is in both classes says which it means."""
    if process is None:
        return np.where(signal, 0, 1), [Group("signal", True, 0), Group("background", False, 1)]
    names, inverse = np.unique(np.asarray(process).astype(np.str_), return_inverse=True)
    code = 2 * inverse + np.where(signal, 0, 1)
    present = np.bincount(code, minlength=2 * names.size) > 0
    groups = []
    for at in np.flatnonzero(present).tolist():
        name, is_signal = str(names[at // 2]), at % 2 == 0
        both = present[2 * (at // 2)] and present[2 * (at // 2) + 1]
        groups.append(Group(f"{name} ({'signal' if is_signal else 'background'})" if both else name, is_signal, at))
    return code, sorted(groups, key=lambda g: (not g.signal, g.name))
