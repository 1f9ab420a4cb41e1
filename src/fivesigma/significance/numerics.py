"""Functions that lose all their digits near zero when written as in the textbook."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array

_SMALL = 0.05  # below it the series, above it the textbook: both are right to 1e-14 there
_CHUNK = 1 << 14  # temporaries stay in the cache, and a sorted argument needs one branch a chunk

# log1p(x) = 2 atanh(r) with r = x / (2 + x): the odd series of atanh beyond its first term, in r^2.
_ATANH = [2.0 / k for k in range(3, 13, 2)]
# exp(x) - 1 - x = x^2 (1/2! + x/3! + ...)
_EXP = [1.0 / float(f) for f in np.cumprod(np.arange(1.0, 13.0))[1:]]


def _horner(x: Array, coefficients: list[float]) -> Array:
    out = np.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        out *= x
        out += c
    return out


def _near_and_far(x: ArrayLike, near: Callable[[Array], Array], far: Callable[[Array], Array]) -> Array:
    """Apply `near` where |x| is small and `far` elsewhere."""
    x = np.asarray(x, dtype=np.float64)
    flat = x.ravel()
    out = np.empty_like(flat)
    for start in range(0, flat.size, _CHUNK):
        z = flat[start : start + _CHUNK]
        part = out[start : start + _CHUNK]
        small = np.abs(z) < _SMALL
        if small.all():
            part[:] = near(z)
        elif not small.any():
            part[:] = far(z)
        else:
            part[small] = near(z[small])
            part[~small] = far(z[~small])
    return out.reshape(x.shape)


def _log1pmx_series(x: Array) -> Array:
    r = x / (2.0 + x)
    r2 = r * r
    return r * (r2 * _horner(r2, _ATANH) - x)  # 2r - x = -x r exactly


def log1pmx(x: ArrayLike) -> Array:
    """``log(1 + x) - x`` for x > -1, to full relative precision."""
    return _near_and_far(x, _log1pmx_series, lambda z: np.log1p(z) - z)


def expm1mx(x: ArrayLike) -> Array:
    """``exp(x) - 1 - x``, to full relative precision."""
    return _near_and_far(x, lambda z: z * z * _horner(z, _EXP), lambda z: np.expm1(z) - z)


def poisson_f(t: ArrayLike) -> Array:
    """``(1 + t) log(1 + t) - t`` for t > -1: the paper's f_2, half a Poisson deviance."""
    return _near_and_far(
        t,
        lambda z: (1.0 + z) * _log1pmx_series(z) + z * z,  # the cancellation costs one bit
        lambda z: (1.0 + z) * np.log1p(z) - z,
    )
