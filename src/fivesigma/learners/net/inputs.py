"""What a net sees of a table: columns of like size, flags of what is missing, and momenta as vectors."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.errors import InputError, did_you_mean

Floats = NDArray[np.float32]

FAR = 10.0  # standard deviations beyond which an event is as far out as any
_SKEWED = 1.0  # skewness from which a column has a heavy tail
STEEP = 20.0  # pseudorapidity beyond which sinh would only overflow
_SYMMETRIES = 4  # mirrored or not, flipped or not
_ENOUGH_ROWS, _FEW_ROWS = 20_000, 10  # of which correlations are formed
_BY_CHANCE = 6.0  # standard deviations that no correlation has by chance
NO_COLUMN = -1  # stands for the pseudorapidity that missing momentum has not


@dataclass(frozen=True)
class Inputs:
    """How the columns of a table become inputs of a net, as learnt from training events.

    A column is ``x`` or, if that is less skewed, ``sign(x) log(1 + |x|/unit)``; less its mean, times a factor. What is
    missing is the mean. Momenta are vectors whose lengths are logarithms in the same way, so that they turn as the
    event turns.
    """

    columns: IntArray  # that are inputs: all but the angles of the momenta
    units: Array  # of the logarithm; 0 where there is none
    means: Array  # weighted, of what the logarithm leaves
    factors: Array  # inverse standard deviation of it; 0 for a constant
    flags: IntArray  # columns whose being missing is an input, one for all that are missing in the same events
    momenta: IntArray  # of shape (n, 3): columns of transverse momentum, pseudorapidity (or -1) and azimuth
    momentum_units: Array  # of shape (n, 2): of the transverse and of the longitudinal momentum
    momentum_factors: Array

    @classmethod
    def learn(cls, X: Array, weight: Array, momenta: IntArray, columns: IntArray | None = None) -> Inputs:
        """Look at training events."""
        columns = np.setdiff1d(np.arange(X.shape[1]) if columns is None else columns, momenta[:, 1:])
        units, means, factors = (np.zeros(columns.size) for _ in range(3))
        flags: dict[bytes, int] = {}
        for k, column in enumerate(columns):
            x = X[:, column].astype(np.float64)
            known = ~np.isnan(x)
            if not known.all():
                flags.setdefault(np.packbits(known).tobytes(), int(column))
            units[k] = _log_unit(x[known])
            means[k], factors[k] = _standard(_compress(x[known], units[k]), weight[known])
        momentum_units, momentum_factors = np.ones((len(momenta), 2)), np.zeros((len(momenta), 2))
        for k, columns_of_one in enumerate(momenta):
            for j, p in enumerate(_momentum(X, columns_of_one)[:2]):
                momentum_units[k, j] = _middle(p)
                size = _compress(p, momentum_units[k, j])
                momentum_factors[k, j] = _inverse(np.sqrt(np.average(size**2, weights=weight)))
        chosen = np.array(sorted(flags.values()), dtype=np.intp)
        return cls(columns, units, means, factors, chosen, momenta, momentum_units, momentum_factors)

    def scalars(self, X: Array) -> Floats:
        """Columns and flags: what no symmetry changes."""
        out = np.empty((X.shape[0], self.columns.size + self.flags.size), dtype=np.float32)
        for k, column in enumerate(self.columns):
            x = _compress(X[:, column].astype(np.float64), self.units[k])
            with np.errstate(over="ignore", invalid="ignore"):  # what is far beyond the rest is FAR
                x = np.clip((x - self.means[k]) * self.factors[k], -FAR, FAR)
            out[:, k] = np.where(np.isnan(x), 0.0, x)
        out[:, self.columns.size :] = np.isnan(X[:, self.flags])
        return out

    def vectors(self, X: Array) -> Floats:
        """Momenta as vectors, of shape (n_events, n_momenta, 3); a missing one is zero."""
        out = np.empty((X.shape[0], len(self.momenta), 3), dtype=np.float32)
        for k, columns in enumerate(self.momenta):
            transverse, along, azimuth = _momentum(X, columns)
            size, z = (
                np.clip(_compress(p, unit) * factor, -FAR, FAR)
                for p, unit, factor in zip(
                    (transverse, along), self.momentum_units[k], self.momentum_factors[k], strict=True
                )
            )
            out[:, k, 0], out[:, k, 1], out[:, k, 2] = size * np.cos(azimuth), size * np.sin(azimuth), z
        return out


def find_momenta(momenta: Any, n_features: int, names: Sequence[str] | None) -> IntArray:
    """Columns of transverse momentum, pseudorapidity and azimuth, by name or by number."""
    found: list[list[int]] = []
    for at, triple in enumerate(() if momenta is None else momenta):
        if isinstance(triple, str) or not isinstance(triple, Sequence) or len(triple) != 3:
            raise InputError(f"momenta[{at}] must be three columns, (pt, eta or None, phi), got {triple!r}")
        if triple[0] is None or triple[2] is None:
            raise InputError(f"momenta[{at}] must have a pt and a phi, got {triple!r}; only eta may be None")
        where = f"momenta[{at}]"
        found.append([NO_COLUMN if c is None else _find(c, n_features, names, where) for c in triple])
    return np.array(found, dtype=np.intp).reshape(-1, 3)


_PART = re.compile(r"(?P<object>.*?)_?(?P<part>pt|eta|phi)(?P<index>\[\d+\])?", re.IGNORECASE)


class NamedMomenta(NamedTuple):
    """Momenta that names tell, and what is to be said of them."""

    momenta: list[tuple[int, int | None, int]]
    note: str


def find_named_momenta(names: Sequence[str] | None, X: Array) -> NamedMomenta:
    """Find columns that belong together as pt, eta and phi, such as lep1_pt, lep1_eta, lep1_phi or MET, MET_phi.

    There are none if another column turns with the event, such as px or the azimuth of something else: the net would
    be shown turned events in which it does not turn.
    """
    found: dict[tuple[str, str], dict[str, int]] = {}
    for k, name in enumerate(names or ()):
        match = _PART.fullmatch(name)
        if match:
            key = (match["object"].lower(), match["index"] or "")
            found.setdefault(key, {})[match["part"].lower()] = k
    bare = {name.lower(): k for k, name in enumerate(names or ())}
    momenta = []
    for (what, index), parts in found.items():
        pt = parts.get("pt", bare.get(what + index))
        if pt is not None and "phi" in parts and _is_angle(X[:, parts["phi"]]) and not (X[:, pt] < 0).any():
            momenta.append((pt, parts.get("eta"), parts["phi"]))
    if names is None or not momenta:
        return NamedMomenta([], "no columns are named as the pt and phi of a particle")
    turning = turning_column(X, find_momenta(momenta, X.shape[1], names))
    if turning is not None:
        return NamedMomenta(
            [], f"column {names[turning]!r} turns with the event and is part of no momentum: momenta are not used"
        )
    told = ", ".join(names[pt] for pt, _, _ in momenta)
    return NamedMomenta(momenta, f"momenta by name: {told}")


def _is_angle(x: Array) -> bool:
    known = x[~np.isnan(x)]
    most = 2 * np.pi + 1e-3
    return bool(known.size and np.abs(known).max() <= most and np.ptp(known) <= most)


def turning_column(X: Array, momenta: IntArray, columns: IntArray | None = None) -> int | None:
    """First column, part of no momentum, that changes when an event is rotated, mirrored or flipped; None if none does.

    It is found by its correlation with what changes so and has, in symmetric events, none with anything that does not:
    azimuths and their doubles, pseudorapidities, and the sines of differences of azimuths. A column that has none
    either is independent of the directions, as far as the events tell, and may stay as it is.
    """
    rows = X[:: len(X) // _ENOUGH_ROWS + 1]
    azimuths = [rows[:, k].astype(np.float64) for k in momenta[:, 2]]
    odd = [rows[:, k].astype(np.float64) for k in momenta[:, 1] if k != NO_COLUMN]
    odd += [turn(n * phi) for phi in azimuths for turn in (np.cos, np.sin) for n in (1, 2)]
    odd += [np.sin(one - other) for one, other in combinations(azimuths, 2)]
    for k in np.setdiff1d(np.arange(X.shape[1]) if columns is None else columns, momenta):
        known = np.isfinite(rows[:, k])
        rank = rankdata(rows[known, k])
        for direction in odd if rank.size else ():
            both = np.isfinite(direction[known])
            of_both = rank[both], direction[known][both]
            if np.count_nonzero(both) < _FEW_ROWS or any(np.ptp(v) == 0 for v in of_both):
                continue
            if abs(np.corrcoef(*of_both)[0, 1]) > _BY_CHANCE / np.sqrt(np.count_nonzero(both)):
                return int(k)
    return None


def find_columns(columns: Any, n_features: int, names: Sequence[str] | None) -> IntArray | None:
    """Numbers of columns that are given by name or by number."""
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not columns:
        raise InputError(f"columns must be a list of names or numbers, got {columns!r}")
    return np.array([_find(c, n_features, names, "columns") for c in columns], dtype=np.intp)


def _find(column: Any, n_features: int, names: Sequence[str] | None, where: str) -> int:
    if isinstance(column, (int, np.integer)) and not isinstance(column, bool):
        if not 0 <= column < n_features:
            raise InputError(f"{where} names the column {column}, but X has {n_features} columns")
        return int(column)
    if names is None:
        raise InputError(f"{where} names the column {column!r}, but X has no names: give numbers or a frame")
    known = list(names)
    if column not in known:
        raise InputError(f"{where} names the column {column!r}, which X has not{did_you_mean(str(column), known)}")
    return known.index(column)


def _momentum(X: Array, columns: IntArray) -> tuple[Array, Array, Array]:
    """Transverse and longitudinal momentum and azimuth, all 0 where one of them is missing."""
    pt, phi = (X[:, c].astype(np.float64) for c in columns[[0, 2]])
    eta = np.zeros_like(pt) if columns[1] == NO_COLUMN else X[:, columns[1]].astype(np.float64)
    missing: BoolArray = np.isnan(pt) | np.isnan(eta) | np.isnan(phi)
    pt, eta, phi = (np.where(missing, 0.0, v) for v in (pt, eta, phi))
    return pt, pt * np.sinh(np.clip(eta, -STEEP, STEEP)), phi


def _compress(x: Array, unit: float) -> Array:
    """Odd logarithm in some unit; x itself if that is 0."""
    return x if unit == 0 else np.asarray(np.copysign(np.log1p(np.abs(x) / unit), x))


def _middle(x: Array) -> float:
    """Median size of what is not zero; 1 if all is."""
    size = np.abs(x[x != 0])
    return float(np.median(size)) if size.size else 1.0


def _log_unit(x: Array) -> float:
    """Unit of the logarithm that makes a column less skewed, or 0."""
    before = abs(_skewness(x))
    unit = _middle(x)
    return unit if before > _SKEWED and abs(_skewness(_compress(x, unit))) < before else 0.0


def _skewness(x: Array) -> float:
    if x.size == 0:
        return 0.0
    x, _ = _below_one(x)
    from_mean = x - x.mean()
    size = np.abs(from_mean).max()
    if size == 0:
        return 0.0
    from_mean /= size  # so that no power overflows
    return float(np.mean(from_mean**3) / np.mean(from_mean**2) ** 1.5)


def _standard(x: Array, weight: Array) -> tuple[float, float]:
    """Weighted mean and inverse standard deviation."""
    if not weight.any():
        return 0.0, 0.0
    x, exponent = _below_one(x)
    mean = float(np.average(x, weights=weight))
    deviation = np.sqrt(np.average((x - mean) ** 2, weights=weight))
    mean, deviation = (float(np.ldexp(value, exponent)) for value in (mean, deviation))
    return mean, _inverse(deviation, abs(mean))


def _below_one(x: Array) -> tuple[Array, int]:
    """Numbers without a power of two, so that no square overflows, and its exponent."""
    exponent = int(np.frexp(np.abs(x).max(initial=0.0))[1])
    return np.ldexp(x, -exponent), exponent


def _inverse(deviation: float, size: float = 0.0) -> float:
    """Inverse of a deviation, or 0 if rounding alone could make it."""
    return float(1.0 / deviation) if deviation > 1e-12 * size and np.isfinite(1.0 / max(deviation, 1e-300)) else 0.0


def symmetric_copies(n_augment: int) -> list[tuple[float, float, float]]:
    """Angle of rotation, sign of y and sign of z of the copies of an event whose mean is a prediction.

    Rotations by equal angles, each mirrored and flipped or not, are a group, so that their mean is symmetric.
    """
    angles = [2.0 * math.pi * k * _SYMMETRIES / n_augment for k in range(n_augment // _SYMMETRIES)]
    group = [(angle, mirror, flip) for angle in angles for mirror in (1.0, -1.0) for flip in (1.0, -1.0)]
    return group or [(0.0, 1.0, 1.0)]


def groups_of_weight(target: AnyArray, weight: Array, n_groups: int) -> IntArray | None:
    """Number of the group of like weight of each event, which a net learns to tell apart beside the two classes.

    Simulated events of one process have like weights, so that the groups stand for the processes. A net that has to
    know them by their features learns more of an event than one that is told signal and background alone.

    Examples
    --------
    >>> groups_of_weight(np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([1, 2, 3, 4, 0.1, 0.3, 0.1, 0.3]), 4)
    array([0, 1, 2, 3, 4, 5, 4, 5])
    """
    out, n_before = np.empty(target.size, dtype=np.intp), 0
    for label in range(2):
        rows = target == label
        edges = np.unique(np.quantile(weight[rows], np.arange(1, n_groups) / n_groups, method="inverted_cdf"))
        groups = np.unique(np.searchsorted(edges, weight[rows]), return_inverse=True)[1]
        out[rows] = n_before + groups
        n_before += int(groups.max()) + 1
    return out if n_before > 2 else None
