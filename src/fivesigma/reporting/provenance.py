"""What was trained and judged on what: hashes, versions, parameters, and how to do it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

import fivesigma
from fivesigma._tools.extras import versions_in_use
from fivesigma.datasets.digest import digest_of, events_digest, row_digests
from fivesigma.datasets.events import Events
from fivesigma.scored.scored_events import ScoredEvents


@dataclass(frozen=True)
class Provenance:
    """Where the numbers come from.

    Attributes
    ----------
    model : str
        Class of the model.
    parameters : dict of str to str
        Those that differ from the defaults come first.
    data_hash : str
        Of the events of this report.
    trained_on : str
        Hash of the training events, empty if the model does not say.
    events, features : int
    rounds : int
    training_seconds : float
    versions : dict of str to str
    created : str
        UTC.
    command : str
        What writes this report again.
    notes : list of str
        What was left out or changed when the events were read.
    """

    model: str
    parameters: dict[str, str]
    data_hash: str
    trained_on: str
    events: int
    features: int
    rounds: int
    training_seconds: float
    versions: dict[str, str]
    created: str
    command: str
    notes: list[str]


def data_hash(events: Events | ScoredEvents) -> str:
    """Hash features, weights and which events are signal, in their order; writing and reading a file changes nothing.

    Parameters
    ----------
    events : Events or ScoredEvents
        Of scored events, the scores stand in place of the features.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> from fivesigma.datasets import make_htautau
    >>> data_hash(make_htautau(200)) == data_hash(make_htautau(200))
    True
    """
    if not isinstance(events, ScoredEvents):
        return events_digest(events)
    score, signal, weight = events.arrays()
    return digest_of(score, weight, signal)


def shared_events(events: Events | ScoredEvents, model: Any, trained_on: Events | None) -> int:
    """How many of the events the model was trained on, as far as can be known."""
    if isinstance(events, ScoredEvents):
        return 0  # without features nothing can be known
    if trained_on is not None:
        return int(np.isin(row_digests(events.X), row_digests(trained_on.X)).sum())
    return len(events) if getattr(model, "data_hash_", None) == data_hash(events) else 0


def feature_names_of(model: Any, events: Events | ScoredEvents) -> tuple[str, ...]:
    """Names of the features, or their numbers if neither events nor model know the names."""
    if isinstance(events, Events):
        return events.feature_names
    return tuple(f"feature {j}" for j in range(int(getattr(model, "n_features_in_", 0))))


def python_call(objects: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """The call that writes a report again.

    Parameters
    ----------
    objects : mapping of str to object
        What was given beside model and events, and stands in the call under the name of its parameter.
    values : mapping of str to value
        What was given and can be written out; the defaults of `fivesigma.report` are left out.

    Examples
    --------
    >>> python_call({"baseline": object(), "trained_on": None}, {"yields": (70, 4000.0), "n_boot": 1000})
    'fivesigma.report(model, events, baseline=baseline, yields=(70.0, 4000.0)).write("report.html")'
    """
    words = ["model", "events", *(f"{name}={name}" for name, value in objects.items() if value is not None)]
    default = {"yields": None, "title": None, "level": 0.68, "n_boot": 1000, "random_state": 0}
    for name, value in values.items():
        if value != default[name]:
            words.append(f"{name}={tuple(map(float, value)) if name == 'yields' else value!r}")
    return f'fivesigma.report({", ".join(words)}).write("report.html")'


def provenance_of(model: Any, events: Events | ScoredEvents, trained_on: Events | None, command: str) -> Provenance:
    """Gather what is known."""
    history = getattr(model, "history_", [])
    given = events.notes if isinstance(events, Events) else ("The scores were given, not computed here.",)
    hashed = data_hash(trained_on) if trained_on is not None else str(getattr(model, "data_hash_", ""))
    return Provenance(
        model=type(model).__name__,
        parameters=_parameters(model),
        data_hash=data_hash(events),
        trained_on=hashed,
        events=len(events),
        features=len(feature_names_of(model, events)),
        rounds=len(history),
        training_seconds=float(sum(r.seconds for r in history)),
        versions={"fivesigma": fivesigma.__version__, **versions_in_use()},
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=command,
        notes=[*_choice(model), *given],
    )


def _choice(model: Any) -> list[str]:
    """What an `AutoClassifier` chose, and why."""
    said = getattr(model, "choice_", None)
    return [f"Chosen on held-out events: {said}."] if said else []


def _parameters(model: Any) -> dict[str, str]:
    """Parameters as text, those that were chosen first."""
    found = {k: " ".join(repr(v).split()) for k, v in model.get_params(deep=False).items() if k != "verbose"}
    default = {k: repr(v) for k, v in type(model)().get_params(deep=False).items()}
    ordered = sorted(found, key=lambda k: (found[k] == default.get(k), k))
    return {k: found[k] if len(found[k]) <= 300 else f"{found[k][:300]}…" for k in ordered}
