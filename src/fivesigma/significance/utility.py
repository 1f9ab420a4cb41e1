"""What every utility offers, and what the variational ones add."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array
from fivesigma.errors import InputError, is_number, shortened

LARGEST_YIELD = 1e75  # s and b up to it, b down to its inverse: squares of s, b and s/b are floats
LARGEST_NUMBER = 1e50  # of b_reg and of what a utility knows of the background: its square is no larger than a yield


def refuse_outside(name: str, values: Array, rule: str, low: float, high: float, *, open_low: bool = False) -> None:
    """Raise with the offending values unless all lie in [low, high), or (low, high) if `open_low`; NaN does not."""
    inside = (values > low if open_low else values >= low) & (values < high)
    if inside.all():
        return
    seen = ", ".join(f"{v:g}" for v in values[~inside].ravel()[:3])
    count = f" ({np.count_nonzero(~inside)} of {inside.size} values)" if inside.size > 1 else ""
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
    label : str
        Name in reports and figures; that of the class if it is empty.

    Examples
    --------
    >>> from fivesigma import AMS2, Utility
    >>> isinstance(AMS2(), Utility), AMS2().guaranteed
    (True, True)
    >>> [round(float(w), 4) for w in AMS2().class_weights(10.0, 100.0)]
    [0.0953, 0.0047]
    """

    guaranteed: ClassVar[bool] = True
    label: ClassVar[str] = ""
    _functions: ClassVar[tuple[str, ...]] = ()  # parameters that are not numbers
    _largest: ClassVar[dict[str, float]] = {}  # where it is not the usual limit
    b_reg: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in self._functions:
                continue
            most = self._largest.get(name, LARGEST_NUMBER)
            if not (is_number(value) and 0 <= value <= most):
                rule = f"at most {most:g}" if is_number(value) and most < value < math.inf else "a finite number >= 0"
                raise InputError(f"{type(self).__name__}: {name} must be {rule}, got {shortened(repr(value))}")

    @classmethod
    def with_usual_numbers(cls, b: float, b_reg: float = 0.0) -> Self:  # noqa: ARG003 - for those with a number
        """Make the utility with the parameters that a report shows by default, for a background of b events."""
        return cls(b_reg=b_reg)  # type: ignore[call-arg]  # subclasses are dataclasses

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
        return self._objective(*self._yields(s, b))[()]

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
        signal, background = self._slopes(*self._yields(s, b))
        return signal[()], background[()]

    def from_objective(self, objective: ArrayLike) -> Array:
        """Z = h(F): sqrt(2 F) unless the utility has its own h."""
        return np.sqrt(2.0 * np.asarray(objective, dtype=np.float64))

    def _yields(self, s: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
        """Check the yields and add b_reg; beyond this door no formula leaves the range of a float."""
        s, b = _broadcast(s=s, b=b)
        total = b + self.b_reg if self.b_reg else b
        refuse_outside("s", s, f"between 0 and {LARGEST_YIELD:g}", 0.0, LARGEST_YIELD)
        name, low = f"b + b_reg (b_reg = {self.b_reg:g})", 1 / LARGEST_YIELD
        refuse_outside(name, total, f"between {low:g} and {LARGEST_YIELD:g}", low, LARGEST_YIELD)
        return s, total

    @abstractmethod
    def _objective(self, s: Array, b: Array) -> Array: ...

    @abstractmethod
    def _slopes(self, s: Array, b: Array) -> tuple[Array, Array]: ...


class VariationalUtility(Utility):
    """A utility with the paper's variational form: -F = inf over u of R(g, u)."""

    def u(self, s: ArrayLike, b: ArrayLike) -> Array:
        """Return the u that makes the surrogate touch -F: f'(s/b) in the paper's family."""
        return self.class_weights(s, b)[0]

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
        with np.errstate(over="ignore", invalid="ignore"):  # a u far from that of the yields
            R = b * self._conjugate(u) + (p - s) * u - p * u + self._constant(u)
        refuse_outside("the surrogate", R, "finite: u or p is too large", -np.inf, np.inf, open_low=True)
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
