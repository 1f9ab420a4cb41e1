"""Submissions in Kaggle's format: written from scores, scored as Kaggle did, and their place on the leaderboard."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._tools.extras import need
from fivesigma._tools.files import written_whole
from fivesigma._types import AnyArray, BoolArray, IntArray
from fivesigma.challenge import B_REG
from fivesigma.cut.bootstrap import Interval, paired_difference
from fivesigma.datasets.blocks import read_columns
from fivesigma.datasets.load import source_of
from fivesigma.errors import InputError
from fivesigma.higgsml.data import CERN, ChallengeEvents, load
from fivesigma.significance import AMS2
from fivesigma.yields import name_rows, signal_and_background

COLUMNS = ("EventId", "RankOrder", "Class")
#: The significance of the challenge.
AMS = AMS2(b_reg=B_REG)

# Identifier, Weight and KaggleWeight of the first event of the CERN file: they tell it from a simulated one.
_FIRST_EVENT = (100_000, 0.00081448039868, 0.00265331133733)


@dataclass(frozen=True, slots=True)
class SetScore:
    """AMS of a submission on one set (b_reg = 10), its bootstrap interval if background is selected, and yields."""

    ams: float
    interval: Interval | None
    s: float
    b: float
    selected: int
    events: int


@dataclass(frozen=True, slots=True)
class SubmissionScore:
    """Scores of a submission.

    Attributes
    ----------
    public, private : SetScore or None
        On the sets b and v; None for a set that the data do not have.
    level : float
        Central probability of the intervals.
    standing : str
        Where the private score would have ended on the leaderboard, or why that cannot be said.
    notes : tuple of str
        What the data are, a sentence each.
    """

    public: SetScore | None
    private: SetScore | None
    level: float
    standing: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"interval ({100 * self.level:g} %)"
        lines = [f"{'set':8} {'AMS':>8}  {head:20} {'s':>9} {'b':>10} {'selected':>9} {'of':>9}"]
        for name, part in (("public", self.public), ("private", self.private)):
            if part is not None:
                span = "no background" if part.interval is None else "[{:.5f}, {:.5f}]".format(*part.interval)
                lines.append(
                    f"{name:8} {part.ams:8.5f}  {span:20} {part.s:9.3f} {part.b:10.2f} {part.selected:9,} "
                    f"{part.events:9,}"
                )
        lines += [f"leaderboard: {self.standing}", "intervals: simulation statistics only"]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def write_submission(
    path: str | os.PathLike[str],
    ids: ArrayLike,
    score: ArrayLike,
    *,
    cut: float | None = None,
    selected: ArrayLike | None = None,
) -> Path:
    """Write a submission in Kaggle's format: EventId, RankOrder, Class.

    The most signal-like event has the largest rank, every selected event outranks every other, and equal scores are
    ranked by identifier.

    Parameters
    ----------
    path : path
        A file ending in .csv; it appears whole or not at all, and one that is there is replaced.
    ids, score : array-like of shape (n_events,)
        Identifiers, each once, and scores; larger means more like signal.
    cut : float, optional
        Events with ``score >= cut`` are class s.
    selected : array-like of bool, shape (n_events,), optional
        True for events of class s; give either this or `cut`.

    Returns
    -------
    pathlib.Path

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = write_submission(f"{folder}/submission.csv", [350000, 350001, 350002], [0.2, 0.9, 0.2], cut=0.5)
    ...     print(file.read_text(), end="")
    EventId,RankOrder,Class
    350000,1,b
    350001,3,s
    350002,2,b
    """
    path = Path(path)
    if path.suffix.lower() != ".csv":
        raise InputError(f"{path.name} does not end in .csv, the format of a submission")
    names, values = np.asarray(ids), np.asarray(score, dtype=np.float64)
    if names.ndim != 1 or names.dtype.kind not in "iu" or np.unique(names).size != names.size:
        raise InputError("ids must be whole numbers, one per event, each once")
    if values.shape != names.shape:
        raise InputError(f"score has the shape {values.shape} for {names.size} ids")
    if not np.isfinite(values).all():
        raise InputError(f"score is NaN or infinite in {name_rows(~np.isfinite(values))}")
    if (cut is None) == (selected is None):
        raise InputError("give either cut or selected")
    chosen = values >= cut if cut is not None else np.asarray(selected)
    if chosen.dtype != np.bool_ or chosen.shape != names.shape:
        raise InputError(f"selected must be {names.size} booleans, got {chosen.dtype} of shape {chosen.shape}")
    rank = np.empty(names.size, dtype=np.int64)
    rank[np.lexsort((names, values, chosen))] = np.arange(1, names.size + 1)
    frame = need("polars").DataFrame({"EventId": names, "RankOrder": rank, "Class": np.where(chosen, "s", "b")})
    with written_whole(path) as beside:
        frame.write_csv(beside)
    return path


def score_submission(
    file: str | os.PathLike[str],
    data: str | os.PathLike[str] | ChallengeEvents,
    *,
    sample: bool = False,
    level: float = 0.68,
    n_boot: int = 1000,
    random_state: int = 0,
) -> SubmissionScore:
    """Check a submission by Kaggle's rules and score it on the public and the private events.

    Parameters
    ----------
    file : path
        The submission: EventId, RankOrder, Class for every event of the sets b and v.
    data : path or ChallengeEvents
        The CERN file, or what `load` made of it; it has the labels of b and v.
    sample : bool, default=False
        Accept a part of the CERN file as `load` does.
    level, n_boot, random_state
        Central probability of the intervals, replicas of the bootstrap, and its seed.

    Returns
    -------
    SubmissionScore

    Raises
    ------
    InputError
        For the first rule that the submission breaks, with the line.

    Examples
    --------
    >>> import tempfile
    >>> from fivesigma.higgsml import load, write_simulated, write_submission
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     events = load(write_simulated(f"{folder}/small.csv.gz", n_events=5000), sample=True)
    ...     test = events[events.in_test]
    ...     file = write_submission(f"{folder}/mass.csv", test.ids, -abs(test.column("DER_mass_vis") - 80), cut=-20)
    ...     result = score_submission(file, events)
    >>> 0.5 < result.private.ams < 3
    True
    """
    events = data if isinstance(data, ChallengeEvents) else load(data, sample=sample)
    if not events.labelled:
        raise InputError("these events have no labels, so nothing can be scored on them; use the CERN file")
    if events.ids is None or not events.in_test.any():
        raise InputError("these events have no sets b and v to score on; use the CERN file, or sample=True or --sample")
    ids, chosen = _read(Path(file), events)
    order = np.argsort(ids)
    parts: dict[str, SetScore | None] = {"b": None, "v": None}
    for name in [name for name in parts if name in events.sets]:
        part = events.subset(name)
        selected = chosen[order[np.searchsorted(ids, np.asarray(part.ids), sorter=order)]]
        parts[name] = _score(selected, part, level, n_boot, random_state)
    private = parts["v"]
    if private is None or not _is_challenge(events):
        where = "not compared, because these are not the challenge's 450,000 private events"
    else:
        where = standing(private.ams)
    return SubmissionScore(parts["b"], private, level, where, events.notes)


def _score(selected: BoolArray, events: ChallengeEvents, level: float, n_boot: int, seed: int) -> SetScore:
    signal = events.is_signal
    s, b = signal_and_background(events.weight[selected], signal[selected])
    interval = None
    if b > 0:
        both = paired_difference(
            selected, selected, signal, events.weight, AMS, level=level, n_boot=n_boot, random_state=seed
        )
        interval = both.first_interval
    return SetScore(float(AMS.value(s, b)), interval, s, b, int(selected.sum()), len(events))


def _is_challenge(events: ChallengeEvents) -> bool:
    """Whether these are the real test events, all of them; training events may have been left out."""
    full = all(events.sets.get(name) == CERN.events[name] for name in "tbv")
    if not full or events.original_weight is None or events.ids is None:
        return False
    ident, original, kaggle = _FIRST_EVENT
    first = events.ids == ident
    weights = np.concatenate([events.original_weight[first], events.weight[first]])
    return weights.shape == (2,) and bool(np.allclose(weights, [original, kaggle], rtol=1e-6))


def _read(path: Path, events: ChallengeEvents) -> tuple[IntArray, BoolArray]:
    """Identifiers of a submission that obeys the rules, and which of them are class s."""
    source, file = source_of(path), path.name
    if tuple(source.names) != COLUMNS:
        seen = ",".join(map(str, source.names))
        raise InputError(f"the header of {file} must be {','.join(COLUMNS)}; it is {seen[:80]}")
    read = read_columns(source, dict.fromkeys(COLUMNS, "value"))
    ids, rank = (_whole(read[name], name, file) for name in COLUMNS[:2])
    _refuse_repeated(ids, "every EventId must appear once", file)
    in_test, of_all = events.in_test, np.asarray(events.ids)
    known = np.isin(ids, of_all[in_test])
    if not known.all():
        row = int(np.argmin(known))
        other = np.asarray(events.kaggle_set)[of_all == ids[row]]
        why = f"is of set {other[0]}, not of b or v" if other.size else "is not in the data"
        raise InputError(f"EventId {ids[row]} in {_line(row, file)} {why}")
    missing = np.setdiff1d(of_all[in_test], ids)
    if missing.size:
        raise InputError(
            f"{file} must have all {in_test.sum():,} events of sets b and v; {missing.size:,} are missing, the first "
            f"is EventId {missing[0]}"
        )
    rule = f"RankOrder must be 1 to {rank.size:,}, each once"
    _refuse_first((rank < 1) | (rank > rank.size), rank, rule, file)
    _refuse_repeated(rank, rule, file)
    classes = read["Class"].astype(str)
    _refuse_first(~np.isin(classes, ["s", "b"]), classes, "Class must be s or b", file)
    return ids, np.asarray(classes == "s")


def _line(row: int, name: str) -> str:
    """Name a line as an editor shows it: the header is line 1."""
    return f"line {row + 2:,} of {name}"


def _refuse_first(wrong: BoolArray, values: AnyArray, rule: str, file: str) -> None:
    """Name the first line that breaks a rule."""
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(f"{rule}; {_line(row, file)} has {values.tolist()[row]!r}")


def _refuse_repeated(values: IntArray, rule: str, file: str) -> None:
    """Name the first line with a value that was there before, and where it was."""
    again = np.ones(values.size, dtype=np.bool_)
    again[np.unique(values, return_index=True)[1]] = False
    if again.any():
        row = int(np.argmax(again))
        first = int(np.argmax(values == values[row]))
        raise InputError(f"{rule}; {values[row]} is in line {first + 2:,} and in {_line(row, file)}")


def _whole(column: AnyArray, name: str, file: str) -> IntArray:
    """Whole numbers; a cell that holds something else is refused."""
    if column.dtype.kind in "iuf":
        numbers = column.astype(np.float64)
    else:
        text = [str(value) for value in column.tolist()]
        numbers = np.array([float(value) if value.lstrip("-").isdecimal() else np.nan for value in text])
    whole = (numbers == np.floor(numbers)) & (np.abs(numbers) < 2**53)
    if not whole.all():
        _refuse_first(~whole, column.astype(str), f"{name} must be a whole number", file)
    return numbers.astype(np.int64)


class Place(NamedTuple):
    """One place of the private leaderboard; its score lies in [low, high]."""

    rank: int
    who: str
    low: float
    high: float

    def __str__(self) -> str:
        last = "th" if self.rank % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(self.rank % 10, "th")
        score = f"{self.low:.5f}" if self.low == self.high else f"{self.low:.2f}+"
        return f"{self.rank}{last} ({self.who}, {score})"


# Only places whose score a public source gives. 1: github.com/melisgl/higgsml. 2: github.com/TimSalimans/HiggsML. 3:
# Kaggle's forum, t/10481. 4 and 5: as quoted in a participant's repository. 26: github.com/phunterlau/kaggle_higgs,
# which says 3.73+ and no more digits. 31: Mackey, Bryan and Mo, PMLR 42:129-134.
PRIVATE = (
    Place(1, "Melis", 3.80581, 3.80581),
    Place(2, "Salimans", 3.78912, 3.78912),
    Place(3, "nhlx5haze", 3.78682, 3.78682),
    Place(4, "ChoKo Team", 3.77526, 3.77526),
    Place(5, "cheng chen", 3.77383, 3.77383),
    Place(26, "phunter", 3.73, 3.74),
    Place(31, "Mackey, Bryan and Mo", 3.72594, 3.72594),
)


def standing(private: float) -> str:
    """Say between which known places a private score would have ended; the places between them are not known.

    `private` is the AMS on the challenge's own private events (set v).

    Examples
    --------
    >>> standing(3.75)
    'between 5th (cheng chen, 3.77383) and 26th (phunter, 3.73+)'
    >>> standing(3.735)
    'between 5th (cheng chen, 3.77383) and 31st (Mackey, Bryan and Mo, 3.72594)'
    """
    score = round(private, 5)  # the digits that Kaggle showed
    level = [place for place in PRIVATE if place.low == place.high == score]
    if level:
        return f"level with {level[0]}"
    above = [place for place in PRIVATE if place.low > score]
    below = [place for place in PRIVATE if place.high <= score]
    if above and below:
        return f"between {above[-1]} and {below[0]}"
    return f"below {above[-1]}" if above else f"above {below[0]}"
