"""The record of a cascade: its rounds, as a table and as columns that can be stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, NamedTuple

from fivesigma._tools.summary import Shown, Summary, digits
from fivesigma.errors import InputError

_SHOWN = 20  # rounds at either end that a table shows


class ClassWeights(NamedTuple):
    """Weights of the two classes; u is None where they are not the (u, f*(u)) of any u."""

    signal: float
    background: float
    u: float | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a cascade.

    Attributes
    ----------
    index : int
        t; round 0 is class-balanced and only finds the first u.
    u : float or None
        u_{t-1}, at which the classifier of this round was trained; None if the class weights belong to no u.
    class_weights : (float, float)
        Weights of signal and background, (u, f*(u)).
    s, b : float
        Yields of the new classifier on the events that drive the update, at the update cut; between two updates those
        of the last one.
    effective_background : float
        Effective background count there.
    significance : float
        Z(s, b); zero if the round is not valid.
    valid : bool
        Whether the selection keeps signal and enough background.
    improved : bool
        Whether the significance is the highest so far.
    surrogate_before, surrogate_after : float or None
        R(g_{t-1}, u_{t-1}) and R(g_t, u_{t-1}): the weighted error that this round set out to lower.
    train_s, train_b : float or None
        Yields on the training events, in the rounds that were monitored.
    seconds : float
        Time that the round took.
    following : ClassWeights
        Class weights of the next round, with u_t.
    restart : int
        Which of several cascades it belongs to.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fivesigma import CascadeClassifier
    >>> y = np.repeat([1, 0], 500)
    >>> X = np.random.default_rng(0).normal(size=(1000, 1)) + 2 * y[:, None]
    >>> model = CascadeClassifier(LogisticRegression(), max_rounds=2, extra_rounds=0, random_state=0).fit(X, y)
    >>> first = model.history_[0]
    >>> bool(first.valid and first.s > 0 and first.significance > 0)
    True
    """

    index: int
    u: float | None
    class_weights: tuple[float, float]
    s: float
    b: float
    effective_background: float
    significance: float
    valid: bool
    improved: bool
    surrogate_before: float | None
    surrogate_after: float | None
    train_s: float | None
    train_b: float | None
    seconds: float
    following: ClassWeights
    restart: int = 0

    def trained_at(self, weights: ClassWeights) -> bool:
        """Whether these were its class weights."""
        return (weights.signal, weights.background, weights.u) == (*self.class_weights, self.u)


# How a round is flattened: its columns, and which of them are whole numbers, flags, or may be None.
_FLAT = {"class_weights": ("signal", "background"), "following": ClassWeights._fields}
_WHOLE = ("index", "restart")
_FLAGS = ("valid", "improved")
_MAYBE = ("u", "surrogate_before", "surrogate_after", "train_s", "train_b", "following.u")


class History(Shown, list[Round]):
    """Rounds of a cascade; its repr is a table.

    Examples
    --------
    >>> from fivesigma import History
    >>> len(History([]))
    0
    """

    def _summary(self) -> Summary:
        """The first and the last rounds, as `repr` and notebooks show them; ``*`` marks the highest so far."""
        restarts = len({r.restart for r in self}) > 1
        head = ("round", "u", "s", "b", "eff. b", "significance", "seconds", "")
        rows: list[tuple[str, ...]] = []
        for r in self if len(self) <= 2 * _SHOWN else [*self[:_SHOWN], *self[-_SHOWN:]]:
            cells = (
                str(r.index),
                "-" if r.u is None else f"{r.u:.5f}",
                digits(r.s),
                digits(r.b),
                f"{r.effective_background:,.1f}",
                f"{r.significance:.4f}",
                f"{r.seconds:.2f}",
                ("*" if r.improved else "") if r.valid else "not valid",
            )
            rows.append((str(r.restart), *cells) if restarts else cells)
        if len(self) > 2 * _SHOWN:
            rows.insert(_SHOWN, (f"... ({len(self) - 2 * _SHOWN} rounds)",))
        return Summary(
            f"{len(self)} round{'s' * (len(self) != 1)}" if self else "no rounds",
            (("restart", *head) if restarts else head) if self else (),
            rows,
            named=False,
        )

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the rounds column by column, as numbers, flags and None: the one form in which they are stored."""
        columns: dict[str, list[Any]] = {}
        for field in fields(Round):
            values = [getattr(r, field.name) for r in self]
            if field.name in _FLAT:
                for k, part in enumerate(_FLAT[field.name]):
                    columns[f"{field.name}.{part}"] = [value[k] for value in values]
            else:
                columns[field.name] = values
        return columns

    @classmethod
    def from_columns(cls, columns: Mapping[str, Sequence[Any]]) -> History:
        """Make rounds of what `to_columns` gave, also after a passage through JSON or an array, where None is NaN.

        A field that was added since takes its default; a column that no field has is refused.
        """
        given = {name: [_restored(name, value) for value in values] for name, values in columns.items()}
        if len({len(values) for values in given.values()}) > 1:
            raise InputError("the columns of the rounds differ in length")
        values_of: dict[str, list[Any]] = {}
        for field in fields(Round):
            if field.name in _FLAT:
                parts = [given.pop(f"{field.name}.{part}", None) for part in _FLAT[field.name]]
                if None not in parts:
                    pairs = list(zip(*parts, strict=True))
                    values_of[field.name] = [ClassWeights(*p) for p in pairs] if field.name == "following" else pairs
            elif field.name in given:
                values_of[field.name] = given.pop(field.name)
            if field.name not in values_of and field.default is MISSING:
                raise InputError(f"the rounds have no column {field.name!r}")
        if given:
            raise InputError(f"the rounds have a column {next(iter(given))[:40]!r}, which is unknown")
        rows = zip(*values_of.values(), strict=True)
        return cls(Round(**dict(zip(values_of, row, strict=True))) for row in rows)


def _restored(name: str, value: Any) -> Any:
    """A value of a column with its type."""
    missing = value is None or value != value  # noqa: PLR0124 - NaN
    if missing and name in _MAYBE:
        return None
    if not isinstance(value, int | float):
        raise InputError(f"the column {name!r} of the rounds has {str(value)[:40]!r} where a number belongs")
    if name in _FLAGS or name in _WHOLE:
        if missing or value != int(value) or (name in _FLAGS and value not in (0, 1)):
            raise InputError(f"the column {name!r} of the rounds cannot hold {value!r}")
        return bool(value) if name in _FLAGS else int(value)
    return float(value)
