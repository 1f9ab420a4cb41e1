"""The events of the challenge: which set each belongs to, and the two weights it has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from fivesigma._tools.summary import Summary, digits
from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.challenge import YIELDS
from fivesigma.datasets.events import Events
from fivesigma.datasets.htautau.kinematics import DERIVED, MEASURED
from fivesigma.datasets.load import load_events, source_of
from fivesigma.errors import InputError
from fivesigma.yields import rescale

#: The 30 columns that Kaggle's participants were given, in their order.
FEATURES = (*DERIVED, *MEASURED)
#: Expected signal and background of every set.
TOTALS = (YIELDS["s"], YIELDS["b"])
#: The set of an event of Kaggle's test.csv: public or private, the file does not say.
UNKNOWN = "?"

_ROUNDING = 1e-5  # of sums of weights that were written as text
_DEALT = (0.5, 0.25)  # shares of t and b where a sample holds training events only; v gets the rest
_DEALING_SEED = 2014


@dataclass(frozen=True, slots=True)
class Census:
    """How many events each set has, and how many of the training events are signal."""

    events: Mapping[str, int]
    training_signal: int

    @property
    def total(self) -> int:
        """Events of all sets."""
        return sum(self.events.values())

    def scaled(self, n_events: int) -> Census:
        """The same proportions for another number of events."""
        names, counts = list(self.events), list(self.events.values())
        ends = np.round(np.cumsum(counts) * (n_events / self.total)).astype(int)
        events = dict(zip(names, np.diff(ends, prepend=0).tolist(), strict=True))
        return Census(events, round(events["t"] * self.training_signal / self.events["t"]))


#: atlas-higgs-challenge-2014-v2.csv.gz: training, public and private test, unused.
CERN = Census({"t": 250_000, "b": 100_000, "v": 450_000, "u": 18_238}, training_signal=85_667)


@dataclass(frozen=True, eq=False, repr=False, slots=True, kw_only=True)
class ChallengeEvents(Events):
    """Events of the challenge, made by `load`; `weight` is KaggleWeight.

    Parameters
    ----------
    kaggle_set : array of shape (n_events,)
        "t" for training, "b" for the public and "v" for the private leaderboard, "u" for unused; "?" in Kaggle's
        test.csv, which does not tell b from v.
    original_weight : array of shape (n_events,), optional
        The column Weight of the CERN file, whose sums over the whole file are the yields; Kaggle's files have none.

    Examples
    --------
    >>> import tempfile
    >>> from fivesigma.higgsml import load, write_simulated
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     events = load(write_simulated(f"{folder}/small.csv.gz", n_events=2000), sample=True)
    >>> training = events.subset("t")
    >>> len(training), round(float(training.weight[training.is_signal].sum()), 3)
    (611, 691.989)
    """

    kaggle_set: AnyArray
    original_weight: Array | None = None

    PER_EVENT: ClassVar[tuple[str, ...]] = (*Events.PER_EVENT, "kaggle_set", "original_weight")

    @property
    def sets(self) -> dict[str, int]:
        """How many events each set has that is there."""
        names, counts = np.unique(self.kaggle_set, return_counts=True)
        found = dict(zip(names.tolist(), counts.tolist(), strict=True))
        return {name: found[name] for name in (*CERN.events, UNKNOWN) if name in found}

    @property
    def in_test(self) -> BoolArray:
        """True for the events that a submission must name: those of the sets b and v."""
        return np.isin(self.kaggle_set, ["b", "v", UNKNOWN])

    def subset(self, name: str) -> ChallengeEvents:
        """Take the events of one set (t, b, v or u), each class scaled to the yield of the whole experiment.

        Weights of events without labels are as they were.
        """
        members = np.asarray(self.kaggle_set == name, dtype=bool)
        if not members.any():
            raise InputError(f"these events have no set {name!r}; they have {list_sets(self.sets)}")
        part = self[members]
        return replace(part, weight=rescale(part.weight, part.is_signal, TOTALS)) if part.labelled else part

    def _summary(self) -> Summary:
        """Yields of each set, as `repr` and notebooks show them."""
        head = f"ChallengeEvents: {len(self):,} rows, {len(self.feature_names)} features"
        notes = [f"note: {note}" for note in self.notes]
        more = ("features", ", ".join(self.feature_names))
        if not self.labelled:
            return Summary(head, notes=[f"sets {list_sets(self.sets)}, no labels", *notes], more=more)
        signal, rows = self.is_signal, []
        for name in self.sets:
            parts = [self.weight[(self.kaggle_set == name) & members] for members in (signal, ~signal)]
            rows.append((name, *(f"{w.size:,}" for w in parts), *(digits(w.sum(), 6) for w in parts)))
        return Summary(head, ("set", "s rows", "b rows", "sum of s", "sum of b"), rows, notes, more=more)


def load(path: str | os.PathLike[str], *, sample: bool = False) -> ChallengeEvents:
    """Read the events of the challenge.

    Parameters
    ----------
    path : path
        The CERN file atlas-higgs-challenge-2014-v2.csv.gz (also as .csv or .parquet, with the same columns), or
        Kaggle's training.csv (all of set t) or test.csv (no labels; weights of one).
    sample : bool, default=False
        Accept a part of such a file. Its notes say what it holds. Each class is scaled to the yield of the whole
        experiment in each of the sets t, b and v; if there are training events only, half of them stay in t and a
        quarter each are dealt to b and v, stratified and the same way every time.

    Returns
    -------
    ChallengeEvents

    Raises
    ------
    InputError
        For a file that is not complete, unless it is a sample, and for anything else that cannot be used.

    Examples
    --------
    >>> import tempfile
    >>> from fivesigma.higgsml import load, write_simulated
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = write_simulated(f"{folder}/small.csv.gz", n_events=2000)
    ...     events = load(file, sample=True)
    >>> events.sets
    {'t': 611, 'b': 244, 'v': 1100, 'u': 45}
    """
    events, expected = _read(path)
    problem = _difference(events, expected)
    if problem is not None and not sample:
        raise InputError(
            f"{Path(path).name} is not the challenge's full file: {problem}; get it with 'fivesigma higgsml fetch', or "
            "use what is there as a sample (sample=True, or --sample)"
        )
    if not sample or not events.labelled or (problem is None and events.in_test.any()):
        return events
    return _as_sample(events)


def _read(path: str | os.PathLike[str]) -> tuple[ChallengeEvents, dict[str, int]]:
    """The events as they stand in the file, and the sets that it should hold."""
    names = source_of(path).names
    keep: tuple[str, ...] = ()
    if "KaggleSet" in names:
        weight, label, expected = "KaggleWeight", "Label", dict(CERN.events)
        keep = ("KaggleSet", "OriginalWeight = Weight * 1.0")
    elif "Label" in names:
        weight, label, expected = "Weight", "Label", {"t": CERN.events["t"]}
    else:
        weight, label, expected = None, None, {UNKNOWN: CERN.events["b"] + CERN.events["v"]}
    events = load_events(
        path,
        features=FEATURES,
        label=label,
        signal=None if label is None else "s",
        weight=weight,
        process="Process" if "Process" in names else None,
        ids="EventId",
        keep=keep,
    )
    sets, original = np.full(len(events), next(iter(expected))), None
    if keep:
        sets, original = events.kept["KaggleSet"], events.kept["OriginalWeight"]
        _check(sets, np.isin(sets.astype(str), list(CERN.events)), "KaggleSet", "t, b, v or u", Path(path).name)
        _check(original, np.isfinite(original), "Weight", "a number", Path(path).name)
    same = {field.name: getattr(events, field.name) for field in fields(Events)}
    same |= {"kept": {}, "columns": None if events.columns is None else replace(events.columns, keep=())}
    return ChallengeEvents(**same, kaggle_set=sets, original_weight=original), expected


def _check(values: AnyArray, right: BoolArray, column: str, what: str, name: str) -> None:
    if not right.all():
        row = int(np.argmin(right))
        raise InputError(f"{column} is {values.tolist()[row]!r} in row {row + 1:,} of {name}; it must be {what}")


def _difference(events: ChallengeEvents, expected: Mapping[str, int]) -> str | None:
    """How the events differ from the full file, in half a sentence."""
    if events.sets != dict(expected):
        full = sum(expected.values())
        return f"it has {len(events):,} events ({list_sets(events.sets)}), not {full:,} ({list_sets(expected)})"
    if not events.labelled:
        return None
    signal = events.is_signal
    in_training = int(np.count_nonzero(signal & (events.kaggle_set == "t")))
    if in_training != CERN.training_signal:
        return f"{in_training:,} of its training events are signal, not {CERN.training_signal:,}"
    for name in (name for name in expected if name != "u"):
        for label, members, total in zip("sb", (signal, ~signal), TOTALS, strict=True):
            found = float(events.weight[members & (events.kaggle_set == name)].sum())
            if abs(found - total) > _ROUNDING * total:
                return f"the weights of {label} in set {name} sum to {found:.10g}, not {total:.10g}"
    return None


def _as_sample(events: ChallengeEvents) -> ChallengeEvents:
    """Give a sample its test sets if it has none, and scale each set to the yields."""
    signal, sets = events.is_signal, events.kaggle_set
    notes = [f"A sample of {len(events):,} events ({list_sets(events.sets)}); the full file has {CERN.total:,}."]
    scaled = [name for name in "tbv" if name in events.sets]
    if not events.in_test.any():
        scaled, sets = list("tbv"), _deal(signal, sets)
        dealt = list_sets(replace(events, kaggle_set=sets).sets)
        notes.append(f"It has no test events, so its training events are dealt to train and test within it: {dealt}.")
    weight = events.weight.copy()
    for name in scaled:
        members = sets == name
        try:
            weight[members] = rescale(weight[members], signal[members], TOTALS)
        except InputError as err:
            raise InputError(f"this sample is too small: in set {name}, {err}") from err
    notes.append(f"The weights of each set are scaled to s = {TOTALS[0]:.2f} and b = {TOTALS[1]:,.2f}.")
    return replace(events, kaggle_set=sets, weight=weight, notes=(*events.notes, *notes))


def _deal(signal: BoolArray, sets: AnyArray) -> AnyArray:
    rng = np.random.default_rng(_DEALING_SEED)
    out = sets.copy()
    for members in (signal, ~signal):
        rows = rng.permutation(np.flatnonzero(members & (sets == "t")))
        ends = np.round(np.cumsum(_DEALT) * len(rows)).astype(int)
        for name, part in zip("tbv", np.split(rows, ends), strict=True):
            out[part] = name
    return out


def list_sets(sets: Mapping[str, int]) -> str:
    """Sets and how many events each has, in words."""
    return ", ".join(f"{name} {count:,}" for name, count in sets.items())
