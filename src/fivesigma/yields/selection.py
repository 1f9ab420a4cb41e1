"""What selections and categories keep: s, b, effective counts, by process too; and Z of yields, valid or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.errors import InputError
from fivesigma.significance import Utility
from fivesigma.yields.checks import check_weights, split_labels

_NO_BACKGROUND = 1e-75  # no utility takes less
_CHUNK = 1 << 16  # yields evaluated at once, so that the temporaries stay in the cache
_FEW_NAMES = 100  # of processes, up to which each is compared with all events


@dataclass(frozen=True)
class Yields:
    """Expected signal and background events of a selection.

    Attributes
    ----------
    s, b : float
        Sums of the physics weights; b holds no b_reg.
    effective_s, effective_b : float
        Effective counts (sum of w)^2 / sum of w^2: how many unweighted events would be as precise.

    Examples
    --------
    >>> from fivesigma import AMS2, Yields
    >>> kept = Yields(s=20.0, b=100.0, effective_s=500.0, effective_b=80.0)
    >>> round(float(AMS2().value(kept.s, kept.b)), 3)
    1.938
    """

    s: float
    b: float
    effective_s: float
    effective_b: float


def effective_count(weight: Array) -> float:
    """(Sum of w)^2 / sum of w^2, zero if there are no events.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma.yields import effective_count
    >>> round(effective_count(np.array([1.0, 1.0, 4.0])), 3)  # three events, one of which dominates
    2.0
    """
    heaviest = float(np.abs(weight).max(initial=0.0))
    if heaviest == 0:
        return 0.0
    shares = weight / heaviest  # so that the squares of tiny weights do not vanish, nor those of huge ones overflow
    return float(shares.sum()) ** 2 / float(np.square(shares).sum())


def signal_and_background(weight: Array, signal: BoolArray, selected: BoolArray | None = None) -> tuple[float, float]:
    """Sums of the weights of signal and of background, of all events or of a selection."""
    if selected is None:
        return float(weight[signal].sum()), float(weight[~signal].sum())
    return float(weight[selected & signal].sum()), float(weight[selected & ~signal].sum())


def yields(selected: ArrayLike, y: ArrayLike, sample_weight: ArrayLike, pos_label: Any = None) -> Yields:
    """Yields of a selection.

    Parameters
    ----------
    selected : array-like of bool, shape (n_events,)
        True for events that are kept.
    y, sample_weight : array-like of shape (n_events,)
        Labels and physics weights, negative ones included with their sign.
    pos_label : label, optional
        The signal, as in `split_labels`.

    Examples
    --------
    >>> from fivesigma.yields import yields
    >>> kept = yields([True, True, False], y=[1, 0, 1], sample_weight=[0.5, 2.0, 0.5])
    >>> kept.s, kept.b
    (0.5, 2.0)
    """
    signal, _ = split_labels(y, pos_label)
    weight = check_weights(sample_weight, signal.size)
    chosen = np.asarray(selected)
    if chosen.dtype != np.bool_ or chosen.shape != signal.shape:
        raise InputError(f"selected must be {signal.size} booleans, got {chosen.dtype} of shape {chosen.shape}")
    w_s, w_b = weight[chosen & signal], weight[chosen & ~signal]
    return Yields(float(w_s.sum()), float(w_b.sum()), effective_count(w_s), effective_count(w_b))


def valid_yields(s: Any, b: Any) -> BoolArray:
    """Whether yields have a significance: s >= 0 and b > 0, element by element; less than 1e-75 counts as nothing."""
    return np.asarray((s >= 0) & (b > _NO_BACKGROUND))


def significance_or_nan(utility: Utility, s: Array, b: Array, valid: BoolArray | None = None) -> Array:
    """Z of yields, NaN where they are not valid or, if `valid` is given, not wanted."""
    valid = valid_yields(s, b) if valid is None else valid
    z = np.empty(s.size)
    s, b, flags = s.ravel(), b.ravel(), valid.ravel()
    for start in range(0, s.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        ok = flags[part]
        if ok.all():
            z[part] = utility.value(s[part], b[part])
        else:
            z[part] = np.nan
            z[part][ok] = utility.value(s[part][ok], b[part][ok])
    return z.reshape(valid.shape)


def standard_errors(utility: Utility, s: Array, b: Array, s2: Array, b2: Array) -> Array:
    """How far Z moves if s and b each move up by their own error, the root of summed squared weights; in quadrature."""
    z = utility.value(s, b)
    return np.hypot(utility.value(s + np.sqrt(s2), b) - z, utility.value(s, b + np.sqrt(b2)) - z)


def significance_or_zero(utility: Utility, s: float, b: float) -> float:
    """Z of yields, zero if they are not valid."""
    return float(utility.value(s, b)) if valid_yields(s, b) else 0.0


def significance_of(utility: Utility, s: float, b: float, what: str = "the selection") -> float:
    """Z of yields; an error that says what they are if they are not valid."""
    if not valid_yields(s, b):
        raise InputError(f"{what} keeps s = {s:g} and b = {b:g}; significance needs s >= 0 and b > 0")
    return float(utility.value(s, b))


class ProcessYields(NamedTuple):
    """One process in every category."""

    signal: bool
    sum_of_weights: Array
    sum_of_squares: Array
    events: IntArray


class Processes(NamedTuple):
    """Names of the processes, which of them are signal, and the process of each event."""

    names: tuple[str, ...]
    signal: BoolArray
    codes: IntArray


def number_names(labels: AnyArray) -> tuple[list[str], IntArray]:
    """Distinct labels as text, sorted, and the number of that of each event.

    A comparison with each of a few names is faster than to sort many.
    """
    seen: list[str] = []
    codes = np.full(labels.size, -1, dtype=np.intp)
    at = 0
    while labels.size and codes[at] < 0:
        if len(seen) == _FEW_NAMES:
            names, numbers = np.unique(labels.astype(np.str_), return_inverse=True)
            return names.tolist(), numbers
        codes[labels == labels[at]] = len(seen)
        if codes[at] < 0:
            raise InputError(f"process is not a name in row {at}, where it is {labels.tolist()[at]!r}")
        seen.append(str(labels[at]))
        at = int((codes < 0).argmax())
    order = np.argsort(seen)
    return [seen[k] for k in order], np.argsort(order)[codes]


def number_processes(signal: BoolArray, process: ArrayLike | None, *, split_mixed: bool = False) -> Processes:
    """Number the processes, or signal and background; a name of both is refused, or split into two by `split_mixed`."""
    if process is None:
        return Processes(("signal", "background"), np.array([True, False]), (~signal).astype(np.intp))
    given = np.asarray(process)
    if given.shape != signal.shape:
        raise InputError(f"process has shape {given.shape} for {signal.size} events")
    if split_mixed:
        given = given.astype(np.str_)
    names, codes = number_names(given)
    share = np.bincount(codes, signal) / np.bincount(codes)
    mixed = (share > 0) & (share < 1)
    if not mixed.any():
        return Processes(tuple(names), share == 1, codes)
    if not split_mixed:
        raise InputError(
            f"process {names[int(mixed.argmax())]!r} has both signal and background events; give them two names"
        )
    present, codes = np.unique(2 * codes + ~signal, return_inverse=True)
    words = [f"{names[k // 2]} ({'background' if k % 2 else 'signal'})" if mixed[k // 2] else str(names[k // 2])
             for k in present.tolist()]  # fmt: skip
    return Processes(tuple(words), present % 2 == 0, codes)


def process_yields(
    category: IntArray, n_categories: int, weight: Array, processes: Processes
) -> dict[str, ProcessYields]:
    """Sum weights, squared weights and events by process and category.

    Parameters
    ----------
    category : int array of shape (n_events,)
        From 0 to ``n_categories - 1``; events at -1 are left out.
    n_categories : int
    weight : array of shape (n_events,)
        Physics weights.
    processes : Processes
        Of the same events.
    """
    cell, shape = _number_cells(category, n_categories, processes)
    first, second = (_sums(cell, shape, values) for values in (weight, np.square(weight)))
    events = _sums(cell, shape, None)
    return {
        name: ProcessYields(bool(processes.signal[i]), first[i], second[i], events[i].astype(np.intp))
        for i, name in enumerate(processes.names)
    }


def process_sums(category: IntArray, n_categories: int, values: Array, processes: Processes) -> Array:
    """Sum values by process and category."""
    return _sums(*_number_cells(category, n_categories, processes), values)


def _number_cells(category: IntArray, n_categories: int, processes: Processes) -> tuple[IntArray, tuple[int, int]]:
    """Number of the process and category of each event, and the shape of what they number."""
    cell = processes.codes * (n_categories + 1)
    cell += category
    cell += 1  # column 0 takes what is left out
    return cell, (len(processes.names), n_categories + 1)


def _sums(cell: IntArray, shape: tuple[int, int], values: Array | None) -> Array:
    sums = np.bincount(cell, values, minlength=shape[0] * shape[1]).reshape(shape)
    return np.asarray(sums[:, 1:], dtype=np.float64)


def class_sums(by_process: Mapping[str, ProcessYields], *, signal: bool) -> tuple[Array, Array]:
    """Sums of weights and of squared weights over the processes of one class, by category."""
    members = [rows for rows in by_process.values() if rows.signal is signal]
    return np.sum([rows.sum_of_weights for rows in members], axis=0), np.sum(
        [rows.sum_of_squares for rows in members], axis=0
    )
