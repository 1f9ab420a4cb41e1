"""Uncertain and free yields of processes, against pyhf and against what is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fivesigma import Normalisation, Varied, categorise, profiled_significance, yield_shifts
from fivesigma._types import Array, IntArray
from fivesigma.categories.workspace import discovery_significance, to_pyhf
from fivesigma.errors import InputError
from fivesigma.likelihood.shifts import Systematics

pytestmark = pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")  # pyhf 0.7.6 uses it


def events(n: int = 12_000, seed: int = 0) -> tuple[Array, IntArray, Array, Array]:
    rng = np.random.default_rng(seed)
    process = np.array(["H", "Z", "ttbar", "W"])[np.arange(n) % 4]
    y = (process == "H").astype(np.intp)
    center = {"H": 1.5, "Z": 0.0, "ttbar": 0.8, "W": -0.5}
    score = rng.normal([center[name] for name in process])
    return score, y, np.where(y == 1, 60.0, 2_000.0) / n * 4 * rng.gamma(3.0, 1 / 3, size=n), process


def shifted(score: Array, y: IntArray) -> tuple[Varied, Varied]:
    moves = np.where(y == 0, 0.04, 0.02)
    return Varied(score=score + moves), Varied(score=score - 0.8 * moves)


def test_a_normalisation_moves_its_processes_by_a_share_of_their_yield() -> None:
    score, y, weight, process = events()
    given: Systematics = {"xs": Normalisation(["Z", "W"], 0.1)}
    found = yield_shifts([-1.0, 0.5, np.inf], score, y, weight, given, process=process)
    for name, rows in found.nominal.items():
        share = 0.1 if name in ("Z", "W") else 0.0
        np.testing.assert_allclose(found.up["xs"][name], rows.sum_of_weights * (1 + share), rtol=1e-14)
        np.testing.assert_allclose(found.down["xs"][name], rows.sum_of_weights * (1 - share), rtol=1e-14)
    weights = {"xs": (Varied(weight=weight * np.where(np.isin(process, ["Z", "W"]), 1.1, 1.0)), None)}
    same = yield_shifts([-1.0, 0.5, np.inf], score, y, weight, weights, process=process)
    assert found.significance == pytest.approx(same.significance, rel=1e-12)


def test_without_processes_the_background_is_one() -> None:
    score, y, weight, _ = events()
    found = yield_shifts([0.5, np.inf], score, y, weight, {"b": Normalisation("background", 0.05)})
    b = found.yields(signal=False)
    assert found.significance == pytest.approx(profiled_significance(found.yields(signal=True), b, [0.05 * b]))


@pytest.mark.parametrize("staterror", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_pyhf_has_the_same_likelihood(seed: int, staterror: bool) -> None:
    pytest.importorskip("pyhf")
    score, y, weight, process = events(seed=seed)
    rng = np.random.default_rng(seed)
    # Few of them where the signal is, so that some scales end at zero.
    weight = weight * np.where(process == "W", rng.choice([1.0, 0.05]), 1.0)
    systematics: Systematics = {
        "xs_Z": Normalisation("Z", 0.1),
        "k_ttbar": Normalisation("ttbar", None),
        "k_W": Normalisation("W", 0.3),
        "scale": shifted(score, y),
        "signal": Normalisation("H", 0.2),
    }
    found = categorise(
        score,
        y,
        weight,
        4 + seed,
        systematics=systematics,
        free=["k_W"],
        process=process,
        mc_statistics=staterror,
    )
    workspace = to_pyhf(found, staterror=staterror)
    types = {m["name"]: m["type"] for s in workspace["channels"][0]["samples"] for m in s["modifiers"]}
    assert types["k_ttbar"] == types["k_W"] == "normfactor"
    assert types["xs_Z"] == types["scale"] == "histosys"
    assert discovery_significance(workspace, found.pulls) == pytest.approx(found.significance, abs=1e-6)
    constrained = {**systematics, "k_ttbar": Normalisation("ttbar", 0.1)}
    other = found.evaluate(score, y, weight, process=process, systematics=constrained, free=[], mc_statistics=staterror)
    assert other.significance > found.significance


def test_a_scale_does_not_fall_below_zero() -> None:
    pytest.importorskip("pyhf")
    score, y, weight, process = events()
    # What has no constraint and lies under the signal alone would be negative elsewhere to absorb it.
    only = {"k_Z": Normalisation("Z", None), "k_ttbar": Normalisation("ttbar", None), "k_W": Normalisation("W", None)}
    weight = weight * np.where(y == 1, 40.0, 1.0)
    found = categorise(score, y, weight, 6, systematics=only, process=process, mc_statistics=False)
    assert min(found.pulls.values()) == -1.0
    assert found.significance > 1
    assert discovery_significance(to_pyhf(found, staterror=False), found.pulls) == (
        pytest.approx(found.significance, abs=1e-6)
    )


def test_a_free_variation_is_a_sample_of_its_own_in_pyhf() -> None:
    pytest.importorskip("pyhf")
    score, y, weight, process = events()
    tilt = Varied(weight=weight * np.where(y == 0, 1 + 0.05 * np.tanh(score), 1.0))
    systematics: Systematics = {"tilt": (tilt, None), "k_Z": Normalisation("Z", None), "scale": shifted(score, y)}
    for staterror in (False, True):
        found = categorise(
            score, y, weight, 5, systematics=systematics, free=["tilt"], process=process, mc_statistics=staterror
        )
        workspace = to_pyhf(found, staterror=staterror)
        assert "Z_tilt" in {sample["name"] for sample in workspace["channels"][0]["samples"]}
        assert discovery_significance(workspace, found.pulls) == pytest.approx(found.significance, abs=1e-6)
    bent = categorise(score, y, weight, 5, systematics=systematics, free=["scale"], process=process)
    with pytest.raises(InputError, match="'scale' is free and not opposite up and down"):
        to_pyhf(bent)


def test_one_category_cannot_measure_a_free_background() -> None:
    score, y, weight, process = events()
    for free in (Normalisation(["Z", "W", "ttbar"], None), Normalisation("Z", None)):
        found = categorise(score, y, weight, 1, systematics={"b": free}, process=process)
        assert found.significance == pytest.approx(0.0, abs=1e-5)
    b = np.array([100.0])
    assert profiled_significance([10.0], b, [b, b], free=[0, 1]) == pytest.approx(0.0, abs=1e-5)


def test_the_widest_constraint_is_free() -> None:
    s, b = np.array([1.0, 10.0]), np.array([500.0, 50.0])
    wide = profiled_significance(s, b, [1e4 * b])
    assert profiled_significance(s, b, [b], free=[0]) == pytest.approx(wide, rel=1e-6)
    assert profiled_significance(s, b, [0 * b], free=[0]) == pytest.approx(profiled_significance(s, b, []))


def test_edges_that_know_of_a_free_background_are_better() -> None:
    score, y, weight, process = events(40_000)
    free: Systematics = {"k": Normalisation("ttbar", None)}
    knowing = categorise(score, y, weight, 3, systematics=free, process=process)
    naive = categorise(score, y, weight, 3, process=process).evaluate(
        score, y, weight, process=process, systematics=free
    )
    assert knowing.significance > naive.significance
    assert knowing.bound is not None
    assert knowing.gap is not None
    assert knowing.gap >= 0


@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
def test_bad_input_is_one_sentence() -> None:
    score, y, weight, process = events(400)

    def shifts(systematics: object, free: object = ()) -> None:
        yield_shifts([0.0, np.inf], score, y, weight, systematics, free=free, process=process)  # type: ignore[arg-type]

    for fraction in (0.0, -0.1, 1.5, np.nan, np.inf):
        with pytest.raises(InputError, match="must be > 0 and at most 1"):
            Normalisation("Z", fraction)
    with pytest.raises(InputError, match="must name at least one process"):
        Normalisation([], 0.1)
    with pytest.raises(InputError, match="scales the process 'tbar', of which there are no events; did you mean"):
        shifts({"xs": Normalisation("tbar", 0.1)})
    with pytest.raises(InputError, match="leaves the signal 'H' free, which the strength of the signal does already"):
        shifts({"xs": Normalisation(["Z", "H"], None)})
    with pytest.raises(InputError, match="both leave the yield of 'Z' free"):
        shifts({"one": Normalisation("Z", None), "two": Normalisation(["W", "Z"], None)})
    with pytest.raises(InputError, match="free names 'scal', which is no systematic; did you mean 'scale'"):
        shifts({"scale": shifted(score, y)}, ["scal"])
    with pytest.raises(InputError, match="free names 'xs', and there are no systematics"):
        categorise(score, y, weight, 2, free=["xs"])
    with pytest.raises(InputError, match="free must hold rows of up"):
        profiled_significance([1.0], [10.0], [[1.0]], free=[1])


@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
def test_variations_that_say_little_are_said() -> None:
    score, y, weight, process = events()
    signal_alone = Varied(weight=weight * np.where(y == 1, 1.1, 1.0))
    same_file = shifted(score, y)[0]
    systematics: Systematics = {
        "signal": (signal_alone, None),
        "nothing": (Varied(weight=weight), Varied(score=score)),
        "twice": (same_file, replace(same_file)),
    }
    found = categorise(score, y, weight, 3, systematics=systematics, process=process)
    assert any("'signal' moves no background" in note for note in found.notes)
    assert any("'nothing' is identical to the nominal events" in note for note in found.notes)
    assert any("'twice' moves the background up and down by the same" in note for note in found.notes)
    assert found.significance < found.known_background
