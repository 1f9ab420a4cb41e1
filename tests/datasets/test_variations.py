"""Systematics of a whole ntuple in one line: varied branches, and varied weights as factors or as a whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fivesigma import InputError, load, load_events
from fivesigma.cli import main
from fivesigma.datasets import Events, find_variations, load_variations
from fivesigma.datasets.write import write_trees

pytest.importorskip("uproot")
WEIGHT = "mc * weight_pu * weight_btag_NOSYS"
ASKED: dict[str, Any] = {"features": ["jet_pt_NOSYS", "met_NOSYS"], "weight": WEIGHT, "signal": ["VH"]}


def columns(process: str, n: int = 300) -> dict[str, np.ndarray[Any, Any]]:
    """A tree of an ATLAS ntuple; jets have JES and JER, missing momentum JES alone, ttbar no varied pile-up weight."""
    rng = np.random.default_rng(len(process))
    jet, met = rng.exponential(50.0, n) + 20.0, rng.exponential(30.0, n)
    out = {"jet_pt_NOSYS": jet, "met_NOSYS": met, "mc": rng.random(n), "eventNumber": np.arange(n)}
    out |= {"jet_pt_JET_JES__1up": 1.1 * jet, "jet_pt_JET_JES__1down": 0.9 * jet, "met_JET_JES__1up": 1.2 * met}
    out |= {"jet_pt_JET_JER__1up": 1.05 * jet, "jet_eta": rng.normal(size=n)}
    out |= {"weight_pu": np.full(n, 2.0), "weight_btag_NOSYS": np.full(n, 0.5)}
    out |= {"weight_btag_EFF__1up": np.full(n, 0.75), "weight_btag_EFF__1down": np.full(n, 0.25)}
    if process != "ttbar":
        out |= {"weight_pu_up": np.full(n, 3.0), "weight_pu_down": np.full(n, 1.0)}
    return out


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, str]:
    for process in ("VH", "ttbar"):
        write_trees(tmp_path / f"{process}.root", [("t", columns(process))])
    return {process: str(tmp_path / f"{process}.root") for process in ("VH", "ttbar")}


def test_a_whole_ntuple_in_one_line(paths: dict[str, str]) -> None:
    events = load_events(paths, **ASKED)
    found: dict[str, Any] = load_variations(paths, events, ["*_NOSYS", "weight_*_up"])
    assert list(found) == ["JET_JES", "JET_JER", "EFF", "pu"]
    up, down = found["JET_JES"]
    assert isinstance(up, Events)
    assert isinstance(down, Events)
    np.testing.assert_allclose(up.X, events.X * np.array([1.1, 1.2], dtype="f4"), rtol=1e-6)
    np.testing.assert_allclose(
        down.X, events.X * np.array([0.9, 1.0], dtype="f4"), rtol=1e-6
    )  # no met for down: nominal
    np.testing.assert_array_equal(up.weight, events.weight)
    up, down = found["JET_JER"]
    assert down is None
    np.testing.assert_allclose(up.X, events.X * np.array([1.05, 1.0], dtype="f4"), rtol=1e-6)
    up, down = found["EFF"]  # a branch of the weight
    np.testing.assert_allclose(up.weight, 1.5 * events.weight)
    pu, less = found["pu"]
    signal = events.is_signal
    np.testing.assert_allclose(pu, np.where(signal, 1.5, 1.0) * events.weight)  # ttbar has no such weight
    np.testing.assert_allclose(less, np.where(signal, 0.5, 1.0) * events.weight)


def test_weights_of_each_process(paths: dict[str, str], tmp_path: Path) -> None:
    """A varied weight stands for its factor of the weight of each process."""
    write_trees(tmp_path / "WH.root", [("t", columns("WH"))])
    some = {"VH": paths["VH"], "WH": str(tmp_path / "WH.root")}
    events = load_events(some, **ASKED | {"weight": {"VH": "mc * weight_pu", "WH": "mc"}})
    found: dict[str, Any] = load_variations(some, events, "weight_*_up")
    up, down = found["pu"]
    # A factor of the one, which is 3 or 1 in place of 2; all of the other.
    np.testing.assert_allclose(up, np.where(events.is_signal, 1.5 * events.weight, 3.0))
    np.testing.assert_allclose(down, np.where(events.is_signal, 0.5 * events.weight, 1.0))


def test_a_fit_takes_them_and_commands_find_them(paths: dict[str, str], tmp_path: Path) -> None:
    events = load_events(paths, **ASKED)
    found = load_variations(paths, events, ["*_NOSYS", "weight_*_up"])
    samples = [word for process, path in paths.items() for word in ("--sample", f"{process}={path}")]
    words = ["--signal", "VH", "--weight", WEIGHT, "--features", "jet_pt_NOSYS", "--features", "met_NOSYS"]
    patterns = ["--systematic", "*_NOSYS", "--systematic", "weight_*_up"]
    more = ["--trees", "4", "--folds", "2", "-o", str(tmp_path / "model"), "--jobs", "1"]
    done = CliRunner().invoke(main, ["train", *samples, *words, *patterns, *more])
    assert done.exit_code == 0, done.output
    assert "found by *_NOSYS, weight_*_up: JET_JES (branches), JET_JER (branches, up only), EFF" in done.output
    assert "pu (weight)." in done.output
    assert done.output.count("Systematics found by") == 1
    page = ["-o", str(tmp_path / "r.html"), "--replicas", "5"]
    report = CliRunner().invoke(main, ["report", str(tmp_path / "model"), *samples, *patterns[2:], *page])
    assert "pu" in report.output
    assert report.exit_code == 0, report.output
    model = load(tmp_path / "model").fit(events, systematics=found)
    assert set(found) >= set(model.left_out_)


NAMES = ["x_NOSYS", "x_A__1up", "x_A__1down", "w", "w_nom", "w_a_up", "w_a_down"]
NAMES += ["puWeight", "puWeightUp", "puWeightDown"]


@pytest.mark.parametrize(
    ("patterns", "weight", "wanted"),
    [
        ("*_NOSYS", None, [("A", {"varied": {"*_NOSYS": "*_A__1up"}}, {"varied": {"*_NOSYS": "*_A__1down"}})]),
        ("w_*_up", "w", [("a", {"weight": "w_a_up"}, {"weight": "w_a_down"})]),
        ("w_*_up", "w_nom * 2", [("a", {"weight": "w_a_up"}, {"weight": "w_a_down"})]),
        ("*WeightUp", "w*puWeight", [("pu", {"weight": "w*puWeightUp"}, {"weight": "w*puWeightDown"})]),
        ("*WeightUp", "w*`puWeight`", [("pu", {"weight": "w*puWeightUp"}, {"weight": "w*puWeightDown"})]),
    ],
)
def test_what_patterns_mean(patterns: str, weight: str | None, wanted: list[Any]) -> None:
    assert [tuple(one) for one in find_variations(NAMES, patterns, weight)] == wanted


def test_the_longest_branch_decides_whose_variation_it_is() -> None:
    names = ["jet_NOSYS", "jet_pt_NOSYS", "jet_pt_JER__1up", "jet_JVT__1up"]
    assert [one.name for one in find_variations(names, "*_NOSYS")] == ["JER", "JVT"]


@pytest.mark.parametrize(
    ("patterns", "sentence"),
    [
        ("w_a_up", "'w_a_up' is no pattern of systematics"),
        ("*_x", "no pattern of systematics: write the nominal branches as"),
        ("w_*_down", "no pattern of systematics"),
        ("v_*_up", r"no branch holds a systematic that 'v_\*_up' finds; there are 'x_NOSYS'"),
        (["w_*_up", "*_a_up"], "the systematic 'w' is found by several patterns"),
    ],
)
def test_patterns_that_find_nothing(patterns: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        find_variations([*NAMES, "b_b_up"], patterns)


def test_a_systematic_with_down_alone() -> None:
    with pytest.raises(InputError, match="'A' has branches for down and none for up"):
        find_variations(["x_NOSYS", "x_A__1down"], "*_NOSYS")


def test_events_that_were_not_read() -> None:
    from fivesigma.datasets import from_arrays

    with pytest.raises(InputError, match="were not read from files"):
        load_variations("x.root", from_arrays([[1.0], [2.0]], [0, 1]), "w_*_up")


@given(st.lists(st.from_regex(r"[A-Z][A-Za-z]{0,4}", fullmatch=True), min_size=1, max_size=4, unique=True))
def test_every_variation_is_found_once(stems: list[str]) -> None:
    kinds = [stem for stem in stems if not stem.lower().endswith(("up", "down"))]
    sides = [f"{s}__1{side}" for s in kinds for side in ("up", "down")]
    names = ["a_NOSYS", "b_c_NOSYS", *(f"{base}_{one}" for base in ("a", "b_c") for one in sides)]
    if kinds:
        found = find_variations(names, "*_NOSYS")
        assert sorted(one.name for one in found) == sorted(kinds)
        assert all(one.down is not None for one in found)
