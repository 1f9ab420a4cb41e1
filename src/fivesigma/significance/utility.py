"""What every utility offers, and what the variational ones add."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array
from fivesigma.errors import InputError, is_number, shortened

USUAL = 1e50  # up to it, and down to its inverse, no formula leaves the range of a float
_LARGEST = 1e300  # of what is computed from other yields, so that sums and roots of it are still floats


def refuse_outside(
    name: str, values: Array, rule: str, low: float, high: float, *, open_low: bool = False
) -> tuple[float, float]:
    """Raise with the offending values unless all lie in [low, high), or (low, high) if `open_low`; NaN does not.

    Returns
    -------
    (float, float)
        The least and the largest value; ones if there are none.
    """
    if values.size == 0:
        return 1.0, 1.0
    lowest, highest = values.min(), values.max()
    if (lowest > low if open_low else lowest >= low) and highest < high:
        return lowest, highest
    bad = ~((values > low if open_low else values >= low) & (values < high))
    seen = ", ".join(f"{v:g}" for v in values[bad].ravel()[:3])
    count = f" ({np.count_nonzero(bad)} of {bad.size} values)" if bad.size > 1 else ""
    raise InputError(f"{name} must be {rule}, got {seen}{count}")


def _broadcast(**named: ArrayLike) -> tuple[Array, ...]:
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in named.items()}
    if len({a.shape for a in arrays.values()}) == 1:
        return tuple(arrays.values())
    try:
        return np.broadcast_arrays(*arrays.values())
    except ValueError:
        shapes = ", ".join(f"{name} of shape {a.shape}" for name, a in arrays.items())
        raise InputError(f"shapes must broadcast, got {shapes}") from None


class Utility(ABC):
    """A significance Z = h(F(s, b)); the base of all utilities.

    Attributes
    ----------
    b_reg : float
        Constant added to every background yield before anything else is computed.
    guaranteed : bool
        Whether F is convex, so that every smaller weighted error is a larger significance.
    """

    guaranteed: ClassVar[bool] = True
    _functions: ClassVar[tuple[str, ...]] = ()  # parameters that are not numbers
    _largest: ClassVar[dict[str, float]] = {}  # where it is not the usual limit
    b_reg: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in self._functions:
                continue
            most = self._largest.get(name, USUAL)
            if not (is_number(value) and 0 <= value <= most):
                rule = f"at most {most:g}" if is_number(value) and most < value < math.inf else "a finite number >= 0"
                raise InputError(f"{type(self).__name__}: {name} must be {rule}, got {shortened(repr(value))}")

    def value(self, s: ArrayLike, b: ArrayLike) -> Array:
        """Significance Z of s expected signal events on b expected background events.

        Parameters
        ----------
        s, b : array-like
            Yields; they broadcast. ``b`` does not include ``b_reg``.

        Returns
        -------
        float or array
            Z, of the broadcast shape.

        Examples
        --------
        >>> from fivesigma import AMS2
        >>> round(float(AMS2(b_reg=10).value(240, 4800)), 3)
        3.432
        """
        return self.from_objective(self.objective(s, b))

    def objective(self, s: ArrayLike, b: ArrayLike) -> Array:
        """F(s, b): what a cascade raises, and what adds up over independent categories."""
        s, total, usual = self._checked(s, b)
        if usual:
            return self._objective(s, total)[()]
        scaled, *yields, unit = self._scaled(s, total)
        with np.errstate(all="ignore"):
            F = unit * scaled._objective(*yields)
        return self._refuse_too_large(F, s, total)[()]

    def class_weights(self, s: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
        """Slopes (dF/ds, -dF/db): the weights of the classes in the next classification problem.

        Parameters
        ----------
        s, b : array-like
            Yields of the present selection.

        Returns
        -------
        signal, background : float or array
            Never negative.
        """
        signal, background = self._slopes_of(s, b)
        return signal[()], background[()]

    def _slopes_of(self, s: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
        s, total, usual = self._checked(s, b)
        if usual:
            return self._slopes(s, total)
        scaled, *yields, _ = self._scaled(s, total)
        with np.errstate(all="ignore"):
            signal, background = scaled._slopes(*yields)
        return self._refuse_too_large(signal, s, total), self._refuse_too_large(background, s, total)

    def from_objective(self, objective: ArrayLike) -> Array:
        """Z = h(F): sqrt(2 F) unless the utility has its own h."""
        return np.sqrt(2.0 * np.asarray(objective, dtype=np.float64))

    def _checked(self, s: ArrayLike, b: ArrayLike) -> tuple[Array, Array, bool]:
        """Check the yields, add b_reg, and say whether no formula can leave the range of a float."""
        s, b = _broadcast(s=s, b=b)
        _, most = refuse_outside("s", s, "finite and >= 0", 0.0, np.inf)
        total = b + self.b_reg if self.b_reg else b
        name = f"b + b_reg (b_reg = {self.b_reg:g})"
        low, high = refuse_outside(name, total, "finite and > 0", 0.0, np.inf, open_low=True)
        return s, total, bool(most <= USUAL and low >= 1 / USUAL and high <= USUAL) and self._usual

    def _yields(self, s: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
        """Check the yields and add b_reg."""
        return self._checked(s, b)[:2]

    def _scaled(self, s: Array, b: Array) -> tuple[Self, Array, Array, Array]:
        """Yields in units of the background, the units, and a utility that has its own numbers in them.

        Every F is homogeneous: F of c s and c b is c F, if what the utility knows of the background scales along.
        """
        root = np.exp2(np.frexp(self._size(b))[1] // 2)  # a power of two, so that nothing is rounded
        with np.errstate(over="ignore", under="ignore"):
            return self._in_units(root), s / root / root, b / root / root, root * root

    @property
    def _usual(self) -> bool:
        """Whether the numbers of the utility itself are no larger than usual."""
        return True

    def _size(self, b: Array) -> Array:
        """Size of the background, in units of which numbers are neither large nor small."""
        return b

    def _in_units(self, root: Array) -> Self:  # noqa: ARG002 - for those with a number of their own
        """Take this utility in units of `root` squared events."""
        return copy.copy(self)

    def _refuse_too_large(self, values: Array, s: Array, b: Array) -> Array:
        bad = ~(values <= _LARGEST)
        if bad.any():
            where = np.unravel_index(int(np.argmax(bad)), bad.shape)
            raise InputError(
                f"{type(self).__name__} of s = {s[where]:g} and b = {b[where]:g} is too large for a floating-point "
                "number; give the weights in other units"
            )
        return values

    @abstractmethod
    def _objective(self, s: Array, b: Array) -> Array: ...

    @abstractmethod
    def _slopes(self, s: Array, b: Array) -> tuple[Array, Array]: ...


class VariationalUtility(Utility):
    """A utility with the paper's variational form: -F = inf over u of R(g, u)."""

    def u(self, s: ArrayLike, b: ArrayLike) -> Array:
        """Return the u that makes the surrogate touch -F: f'(s/b) in the paper's family."""
        return self._slopes_of(s, b)[0][()]

    def weights_at(self, u: ArrayLike) -> tuple[Array, Array]:
        """Class weights (u, f*(u)).

        Parameters
        ----------
        u : array-like
            Inside the domain of f* that yields can reach, i.e. the range of f' over s/b >= 0.

        Examples
        --------
        >>> from fivesigma import AMS3
        >>> signal, background = AMS3().weights_at(0.1)
        >>> float(signal), round(float(background), 6)
        (0.1, 0.005)
        """
        u = self._inside_domain(u)
        return u[()], self._conjugate(u)[()]

    def surrogate(self, s: ArrayLike, b: ArrayLike, u: ArrayLike, p: ArrayLike) -> Array:
        """Compute the paper's R: b f*(u) + s~ u - p u, with s~ = p - s the missed signal and p all signal.

        Never below -F(s, b), and equal to it at ``u = self.u(s, b)``.
        """
        s, b = self._yields(s, b)
        u = self._inside_domain(u)
        s, b, u, p = _broadcast(s=s, b=b, u=u, p=p)
        with np.errstate(over="ignore", invalid="ignore"):
            missed = p - s
            R = b * self._conjugate(u) + missed * u - p * u + self._constant(u)
        refuse_outside("the surrogate", R, f"within {_LARGEST:g}: u or the yields are too large", -_LARGEST, _LARGEST)
        return R[()]

    def _inside_domain(self, u: ArrayLike) -> Array:
        u = np.asarray(u, dtype=np.float64)
        low, high = self.u_domain
        refuse_outside(f"u of {type(self).__name__}", u, f"in [{low:g}, {high:g}), the domain of f*", low, high)
        return u

    @property
    def u_domain(self) -> tuple[float, float]:
        """Interval [low, high) of the u that yields with s >= 0 and b > 0 can give."""
        return 0.0, math.inf

    @abstractmethod
    def _conjugate(self, u: Array) -> Array:
        """f*(u), the background's class weight."""

    def _constant(self, u: Array) -> Array:
        """Part of R that no selection can change; zero in the paper's family."""
        return np.zeros_like(u)
