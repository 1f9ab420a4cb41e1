"""Running sums with less noise, by a moving average along the score."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter1d

from fivesigma._types import Array

_WIDTH = 0.045  # of the kernel, as a share of the range of the coordinate
NOISE = 0.3  # share of the noise that averages keep, so that they give little away in sample
_POINTS = 1024
_SMALLEST_RATIO = 0.05  # of a varied background to the nominal one, where it is averaged


class MovingAverage(NamedTuple):
    """Takes most of the noise out of running sums.

    Their logarithms are smoothed along the share of all yields that they are. The coordinate is even in the share and
    in its logarithm, as the candidate edges are: the kernel averages over a few per cent of the events in the bulk and
    over less than an e-fold where few are left.
    """

    first: int  # edge from which there is signal and background
    coordinate: Array

    @classmethod
    def of(cls, s: Array, b: Array) -> MovingAverage | None:
        """Along running yields, of which the first are zero; None if one step holds everything."""
        s, b = np.maximum.accumulate(s), np.maximum.accumulate(b)
        first = int(np.argmax((s > 0) & (b > 0)))
        share = s[first:] / s[-1] / 2 + b[first:] / b[-1] / 2 if s[first] > 0 and b[first] > 0 else np.ones(1)
        return None if share[0] == 1 else cls(first, share - np.log(share) / np.log(share[0]))

    def __call__(self, running: Array, noise: float = NOISE) -> Array:
        """Running sums with a part of their noise."""
        return noise * running + (1 - noise) * self._without_noise(running)

    def shift(self, running: Array, shift: Array, noise: float = NOISE) -> Array:
        """Running shift of such sums with a part of its noise: log(1 + shift / running) is smoothed in the same way."""
        rising = np.maximum.accumulate(running)[self.first :]
        ratio = np.maximum(1.0 + shift[self.first :] / rising, _SMALLEST_RATIO)
        smooth = shift.copy()
        smooth[self.first :] = self._without_noise(running)[self.first :] * np.expm1(self._filter(np.log(ratio)))
        return noise * shift + (1 - noise) * smooth

    def _without_noise(self, running: Array) -> Array:
        rising = np.maximum.accumulate(running)
        rising[self.first :] = np.exp(self._filter(np.log(rising[self.first :])))
        np.maximum.accumulate(rising, out=rising)  # rounding must not make them fall
        return rising

    def _filter(self, logs: Array) -> Array:
        even = np.linspace(self.coordinate[0], self.coordinate[-1], _POINTS)
        on_even = np.interp(even, self.coordinate, logs)
        filtered: Array = gaussian_filter1d(on_even, _WIDTH * even.size, mode="nearest")
        return np.interp(self.coordinate, even, filtered)
