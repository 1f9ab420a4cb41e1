"""Scored events: what a model says of events, in memory and as a file."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._tools.extras import need
from fivesigma._tools.files import written_with_digest
from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.errors import InputError
from fivesigma.yields import check_weights, name_rows, rescale, split_labels

if TYPE_CHECKING:
    from fivesigma.datasets.events import Events

ENDINGS = (".csv", ".parquet")


@dataclass(frozen=True, eq=False, repr=False)
class ScoredEvents:
    """Events with the score that a model gives them.

    `scan`, `categorise`, `Categories.evaluate`, `yield_shifts` and `report` take them in place of arrays.

    Parameters
    ----------
    score : array of shape (n_events,)
        Larger means more like signal.
    signal : array of shape (n_events,), optional
        Which events are signal, as booleans or as zeros and ones; None if the events have no labels.
    weight : array of shape (n_events,), optional
        Physics weights; None if the events have none.
    selected : bool array of shape (n_events,), optional
        Which events the model's own cut keeps.
    process : array of shape (n_events,), optional
        What each event was simulated as.
    ids : array of shape (n_events,), optional
        Identifiers; a file gets row numbers if there are none.
    classes : (object, object), default=(0, 1)
        How background and signal are called in a file, and in variations that are samples of their own.

    Examples
    --------
    >>> import fivesigma
    >>> from fivesigma.datasets import make_htautau
    >>> train, test = make_htautau(4000), make_htautau(4000, random_state=1)
    >>> model = fivesigma.GrownCascadeClassifier(n_trees=10, b_reg=10.0, random_state=0, n_jobs=1)
    >>> model = model.fit(train.X, train.y, train.weight)
    >>> scored = fivesigma.ScoredEvents.of(model, test)
    >>> scored
    ScoredEvents: 4,000 events, s = 691.989, b = 410999.847, with selected, process, ids
    >>> fivesigma.categorise(scored, n_categories=3).held_out
    False
    """

    score: AnyArray
    signal: BoolArray | None = None
    weight: Array | None = None
    selected: BoolArray | None = None
    process: AnyArray | None = None
    ids: AnyArray | None = None
    classes: tuple[Any, Any] = (0, 1)

    def __post_init__(self) -> None:
        score = _check_score(self.score)
        found: dict[str, Any] = {"score": score}
        for name in ("signal", "selected", "process", "ids"):
            value = getattr(self, name)
            if value is None:
                continue
            column = np.asarray(value)
            if column.shape != score.shape:
                raise InputError(f"{name} has shape {column.shape} for {score.size} events")
            found[name] = _check_flags(name, column) if name in ("signal", "selected") else column
        if self.weight is not None:
            found["weight"] = check_weights(self.weight, score.size)
        for name, column in found.items():
            object.__setattr__(self, name, column)  # the dataclass is frozen

    def __len__(self) -> int:
        return int(self.score.size)

    def __repr__(self) -> str:
        words = [f"{len(self):,} events"]
        if self.signal is None or self.weight is None:
            words += [f"no {name}" for name in ("signal", "weight") if getattr(self, name) is None]
        else:
            words += [f"{key} = {self.weight[m].sum():.3f}" for key, m in (("s", self.signal), ("b", ~self.signal))]
        more = [name for name in ("selected", "process", "ids") if getattr(self, name) is not None]
        return f"ScoredEvents: {', '.join(words)}{', with ' * bool(more)}{', '.join(more)}"

    @classmethod
    def of(cls, model: Any, events: Events, yields: tuple[float, float] | None = None) -> ScoredEvents:
        """Score events with a fitted model.

        Parameters
        ----------
        model : classifier
            Anything with `predict_proba`. Columns are brought into the order in which it was trained, if it knows
            their names. `selected` needs a model with a cut of its own, `cut_`.
        events : Events
            With labels or without.
        yields : (float, float), optional
            Full yields of signal and background to which the weights are scaled, if these events stand for the whole.

        Returns
        -------
        ScoredEvents
        """
        score = signal_probability(model, events)
        signal, classes = None, cls.classes
        if events.labelled:
            signal = events.is_signal
            background = events.y[~signal][:1].tolist() or [events.signal]
            classes = (background[0], events.signal)
        cut = getattr(model, "cut_", None)
        selected = None if cut is None else score >= cut
        found = cls(score, signal, events.weight, selected, events.process, events.ids, classes)
        return found if yields is None else found.scaled_to(*yields)

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        signal: Any = None,
        yields: tuple[float, float] | None = None,
        *,
        labelled: bool = True,
        like: ScoredEvents | None = None,
    ) -> ScoredEvents:
        r"""Read a file of scores, as `write` and ``fivesigma predict`` write it.

        Parameters
        ----------
        path : path
            Ends in .csv or .parquet; has the column score, label and weight if `labelled`, and maybe selected, process
            and id.
        signal : label, optional
            The label that means signal. It must be given unless the labels are a known pair such as s/b.
        yields : (float, float), optional
            Full yields of signal and background to which the weights are scaled, if these events stand for the whole.
        labelled : bool, default=True
            Whether a file without labels or weights is refused.
        like : ScoredEvents, optional
            Events whose labels mean the same here, such as the nominal ones of a variation; one of the two labels is
            then enough.

        Returns
        -------
        ScoredEvents

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import fivesigma
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder) / "scores.csv"
        ...     _ = file.write_text("score,label,weight\n0.9,s,0.5\n0.1,b,2.0\n")
        ...     fivesigma.ScoredEvents.read(file)
        ScoredEvents: 2 events, s = 0.500, b = 2.000
        """
        from fivesigma.datasets.sources import find_targets
        from fivesigma.scored.scored_files import COLUMNS, ScoreFile, find_classes, find_labels

        check_ending(Path(path))
        file = ScoreFile(find_targets(path)[0], COLUMNS[:3] if labelled else COLUMNS[:1])
        read = file.read(COLUMNS)
        labels, is_signal, classes = read.get("label"), None, cls.classes
        if labels is not None:
            seen = find_labels(labels)
            classes = find_classes(seen, signal, file.name) if like is None else like.classes
            unknown = [label for label in seen if label not in classes]
            if unknown:
                raise InputError(
                    f"column 'label' of {file.name} holds {unknown[0]!r}; the nominal events have {list(classes)}"
                )
            is_signal = np.asarray(labels == classes[1], dtype=bool)
        weight, selected, process, ids = map(read.get, COLUMNS[2:])
        found = cls(read["score"], is_signal, weight, selected, process, ids, classes)
        return found if yields is None else found.scaled_to(*yields)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write a file of scores: id, score, and selected, label, weight, process where they are known.

        Parameters
        ----------
        path : path
            Ends in .csv or .parquet. The file appears whole or not at all, and one that is there is replaced. Its
            SHA-256 is written next to it, with ``.sha256`` added to the name, and `read` checks it.

        Returns
        -------
        pathlib.Path
        """
        path = Path(path)
        check_ending(path)
        frame = self.frame()
        with written_with_digest(path) as beside:
            (frame.write_csv if path.suffix.lower() == ".csv" else frame.write_parquet)(beside)
        return path

    def frame(self, first: int = 0) -> Any:
        """The columns of a file of scores as a polars.DataFrame; without ids the rows are numbered from `first`."""
        columns = {
            "id": np.arange(first, first + len(self)) if self.ids is None else self.ids,
            "score": self.score,
            "selected": self.selected,
            "label": None if self.signal is None else np.array(self.classes)[self.signal.astype(np.intp)],
            "weight": self.weight,
            "process": self.process,
        }
        return need("polars").DataFrame({name: column for name, column in columns.items() if column is not None})

    def arrays(self) -> tuple[AnyArray, BoolArray, Array]:
        """Score, signal and weight of events that have all three; an error otherwise."""
        if self.signal is None or self.weight is None:
            lacking = "labels" if self.signal is None else "weights"
            raise InputError(f"these scored events have no {lacking}; significance needs labels and weights")
        return self.score, self.signal, self.weight

    def scaled_to(self, s: float, b: float) -> ScoredEvents:
        """Scale the weights of each class to its full yield, if these events stand for the whole.

        Parameters
        ----------
        s, b : float
            Expected signal and background events.
        """
        _, signal, weight = self.arrays()
        return replace(self, weight=rescale(weight, signal, (s, b)))


def as_scored(
    score: ArrayLike | ScoredEvents,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    process: ArrayLike | None = None,
    pos_label: Any = None,
) -> ScoredEvents:
    """Turn what a public function was given into scored events with both classes and weights, checked once."""
    if isinstance(score, ScoredEvents):
        for name, given in (("y", y), ("sample_weight", sample_weight), ("pos_label", pos_label)):
            if given is not None:
                raise InputError(f"{name} is given with ScoredEvents, which know labels and weights; leave it out")
        _, signal, _ = score.arrays()
        if signal.all() or not signal.any():
            kind = "signal" if signal.all() else "background"
            raise InputError(f"the scored events are all {kind}; signal and background are both needed")
        return score if process is None else replace(score, process=np.asarray(process))
    if y is None:
        raise InputError("y is None; an array of scores needs labels, unless ScoredEvents are given in its place")
    if sample_weight is None:
        raise InputError(
            "sample_weight is None; significance needs the expected yield of each event: give the weights, or "
            "np.ones(len(y)) if every event counts as one"
        )
    try:
        signal, classes = split_labels(y, pos_label)
    except InputError as error:
        if _look_swapped(score, y):
            raise InputError(f"{error}; the scores have two values only: are score and y swapped?") from None
        raise
    given = _check_score(score)
    if given.size != signal.size:
        raise InputError(f"score has shape {given.shape} for {signal.size} events")
    others: Any = {"weight": sample_weight, "process": process, "classes": tuple(classes.tolist())}
    return ScoredEvents(given, signal, **others)


def _check_score(score: Any) -> AnyArray:
    """Scores as floats, of their own precision if they are floats of 32 or 16 bits."""
    given = np.asarray(score)
    if given.ndim == 2 and given.shape[1] == 2:
        raise InputError(
            f"score has shape {given.shape}, as predict_proba returns it: give the column of the signal, score[:, 1], "
            "or both columns to categorise_scores"
        )
    if given.ndim != 1 or given.dtype.kind not in "biuf":
        several = "; categorise_scores takes the probabilities of several classes" if given.ndim == 2 else ""
        raise InputError(f"score must be one number per event, got {given.dtype} of shape {given.shape}{several}")
    if given.size == 0:
        raise InputError("score is empty: there are no events")
    if np.isnan(given.min()):  # one pass, and no array of flags unless there is something to say
        raise InputError(f"score is NaN in {name_rows(np.isnan(given))}")
    return given.astype(given.dtype if given.dtype in (np.float16, np.float32) else np.float64, copy=False)


def _check_flags(name: str, column: AnyArray) -> BoolArray:
    """Booleans, or numbers that are all zero or one."""
    if column.dtype.kind not in "biuf" or not (column.dtype == np.bool_ or np.isin(column, (0, 1)).all()):
        raise InputError(f"{name} must be booleans, or zeros and ones, got {column.dtype}")
    return column.astype(np.bool_, copy=False)


def _look_swapped(score: Any, y: Any) -> bool:
    """Whether labels of many values stand beside scores of two."""
    values, labels = np.asarray(score), np.asarray(y)
    return values.ndim == labels.ndim == 1 and np.unique(values).size == 2 < np.unique(labels).size


def signal_probability(model: Any, events: Events) -> Array:
    """P(signal) of events whose columns are brought into the order in which the model was trained."""
    if not hasattr(model, "predict_proba"):
        raise InputError(f"a {type(model).__name__} has no predict_proba, so it cannot score events")
    from fivesigma.datasets.columns import Columns

    X = events.table(Columns.of_model(model).feature_names or None)
    n_features = getattr(model, "n_features_in_", X.shape[1])
    if X.shape[1] != n_features:
        raise InputError(f"the events have {X.shape[1]} features, and the model was trained with {n_features}")
    fitted = getattr(model, "feature_names_in_", None)
    table: Any = X
    if hasattr(model, "__fivesigma_score__"):  # an estimator of ours finds the columns by itself
        table = events if fitted is not None else X
    elif fitted is not None:
        table = need("polars").DataFrame(X, schema=list(map(str, fitted)))
    # P(signal) is the last column of a model with a cut; other classifiers sort their labels.
    classes = [] if hasattr(model, "cut_") else np.asarray(getattr(model, "classes_", [])).tolist()
    column = classes.index(events.signal) if events.labelled and events.signal in classes else 1
    return np.asarray(model.predict_proba(table)[:, column])


def check_ending(path: Path) -> None:
    """Refuse a file that is neither CSV nor Parquet."""
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"{path.name} ends in none of {', '.join(ENDINGS)}: scores are written to and read from these")
