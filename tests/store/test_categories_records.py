"""Saved categories: what is loaded assigns and evaluates as what was saved, and nothing else is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fivesigma
from fivesigma import Normalisation, Varied
from fivesigma._types import Array, IntArray
from fivesigma.categories import Categories
from fivesigma.errors import InputError, StoreError
from fivesigma.likelihood.shifts import Systematics
from fivesigma.store.codecs import CODECS
from fivesigma.store.packing import Packer, Unpacker


def events(n: int = 6_000) -> tuple[Array, IntArray, Array, Array]:
    rng = np.random.default_rng(0)
    process = np.array(["H", "Z", "W"])[np.arange(n) % 3]
    y = (process == "H").astype(np.intp)
    return rng.normal(1.5 * y), y, np.where(y == 1, 0.05, 1.0) * rng.gamma(3.0, size=n), process


def found(goal: str = "discovery") -> Categories:
    score, y, weight, process = events()
    moves: Systematics = {"scale": (Varied(score=score + 0.05), None), "k": Normalisation("W", None)}
    return fivesigma.categorise(score, y, weight, 3, goal=goal, systematics=moves, process=process)


@pytest.mark.parametrize("goal", ["discovery", "measurement"])
def test_categories_are_as_they_were(goal: str, tmp_path: Path) -> None:
    score, y, weight, process = events()
    before = found(goal)
    after = fivesigma.load(fivesigma.save(before, tmp_path / "categories"), untrusted=True)
    assert repr(after) == repr(before)
    assert (after.significance, after.uncertainty) == (before.significance, before.uncertainty)
    assert after.pulls == before.pulls
    assert after.to_pyhf() == before.to_pyhf()
    np.testing.assert_array_equal(after.assign(score), before.assign(score))
    other: Systematics = {"k": Normalisation("W", None), "scale": (Varied(score=score + 0.04), None)}
    quoted = [one.evaluate(score, y, weight, process=process, systematics=other) for one in (before, after)]
    assert quoted[0].significance == quoted[1].significance
    with pytest.raises(InputError, match="an interval needs all events in memory"):
        after.interval()


def test_what_is_no_part_of_categories_is_refused() -> None:
    packer, by_tag = Packer(CODECS), {codec.tag: codec for codec in CODECS}
    text = json.dumps(packer.pack(found(), "model"))
    for old, new, sentence in (
        ('"Floors"', '"Popen"', "is a 'Popen'; known are"),
        ('"min_background"', '"shell"', "has not the fields of a Floors"),
    ):
        assert old in text
        with pytest.raises(StoreError, match=sentence):
            Unpacker(by_tag, packer.files).unpack(json.loads(text.replace(old, new, 1)), "model")
