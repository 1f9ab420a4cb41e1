"""Ntuples as they are: one or more files per process, weights that are products, jagged branches, TTree and RNTuple."""

from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest

from fivesigma.datasets import Events, load_events
from fivesigma.errors import InputError

uproot = pytest.importorskip("uproot")

PROCESSES = ("VH", "ggH", "ttbar", "Zjets", "Wjets")
SIGNAL = ["VH", "ggH"]
WEIGHT, CUT = "mcWeight * puWeight * sf", "passSel && jet_pt[0] > 45 && count(jet_pt) >= 2"
FEATURES = ["mBB", "j1 = jet_pt[0]", "HT = sum(jet_pt)", "dphi = abs(phi1 - phi2)"]
N = 400


def make(process: str, part: int) -> dict[str, Any]:
    """Branches of one file, from NumPy."""
    rng = np.random.default_rng([PROCESSES.index(process), part])
    n_jets = rng.integers(0, 6, N)
    return {
        "mBB": rng.normal(110, 20, N).astype(np.float32),
        "phi1": rng.uniform(-3, 3, N).astype(np.float32),
        "phi2": rng.uniform(-3, 3, N).astype(np.float32),
        "jet_pt": ak.unflatten(rng.exponential(40, n_jets.sum()) + 20, n_jets),
        "mcWeight": np.where(rng.random(N) < 0.2, -1.0, 1.0) * rng.uniform(0.5, 2, N),
        "puWeight": rng.uniform(0.8, 1.2, N).astype(np.float32),
        "sf": rng.uniform(0.9, 1.1, N),
        "passSel": rng.random(N) < 0.8,
        "eventNumber": rng.integers(2**53, 2**62, N),
        "runNumber": np.full(N, 300000 + part),
    }


def write(path: Path, branches: dict[str, Any], kind: str, tree: str = "Nominal") -> None:
    with uproot.recreate(path) as file:
        if kind == "rntuple":
            file.mkrntuple(tree, branches)
        else:
            file.mktree(tree, {name: _type(values) for name, values in branches.items()})
            file[tree].extend(branches)
        file["h_sumw"] = np.histogram([0.5], bins=1, range=(0, 1), weights=[1000.0])


def _type(values: Any) -> Any:
    return "var * float64" if isinstance(values, ak.Array) else values.dtype


@pytest.fixture(scope="module", params=["ttree", "rntuple"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp(request.param)
    for process in PROCESSES:
        for part in range(2 if process == "ttbar" else 1):
            write(out / f"{process}_{part}.root", make(process, part), request.param)
    return out


def paths(folder: Path) -> dict[str, Any]:
    return {
        "VH": str(folder / "VH_*.root"),
        "ggH": folder / "ggH_0.root",
        "ttbar": [str(folder / "ttbar_0.root"), f"{folder / 'ttbar_1.root'}:Nominal"],
        "Zjets": folder / "Zjets_0.root",
        "Wjets": folder / "Wjets_0.root",
    }


def loaded(folder: Path, **options: Any) -> Events:
    settings = {"signal": SIGNAL, "tree": "Nominal", "weight": WEIGHT, "cut": CUT, "features": FEATURES}
    return load_events(paths(folder), **(settings | {"keep": ["eventNumber"]} | options))


def by_hand(process: str) -> tuple[Any, ...]:
    """Features, weights and event numbers of a process, by NumPy and awkward alone."""
    found: list[list[Any]] = [[], [], []]
    for part in range(2 if process == "ttbar" else 1):
        b = make(process, part)
        jets = b["jet_pt"]
        first = ak.to_numpy(ak.fill_none(ak.firsts(jets), np.nan))
        kept = b["passSel"] & (first > 45) & (ak.to_numpy(ak.num(jets)) >= 2)
        X = np.column_stack([b["mBB"], first, ak.to_numpy(ak.sum(jets, axis=1)), np.abs(b["phi1"] - b["phi2"])])
        weight = b["mcWeight"] * b["puWeight"].astype(np.float64) * b["sf"]
        for out, values in zip(found, (X, weight, b["eventNumber"]), strict=True):
            out.append(values[kept])
    return tuple(np.concatenate(parts) for parts in found)


def test_five_processes_are_those_of_numpy(folder: Path) -> None:
    events = loaded(folder)
    assert events.feature_names == ("mBB", "j1", "HT", "dphi")
    assert events.signal == "signal"
    assert set(np.asarray(events.process)) == set(PROCESSES)
    assert (events.weight < 0).any()
    for process in PROCESSES:
        X, weight, numbers = by_hand(process)
        mine = events[events.process == process]
        np.testing.assert_allclose(mine.weight, weight, rtol=1e-14)
        assert mine.weight.sum() == pytest.approx(weight.sum(), rel=1e-12)
        np.testing.assert_allclose(mine.X, X, rtol=1e-6)
        np.testing.assert_array_equal(mine.kept["eventNumber"], numbers)
        assert mine.kept["eventNumber"].dtype == np.int64
        assert (mine.is_signal == (process in SIGNAL)).all()


def test_normalisation(folder: Path) -> None:
    plain = loaded(folder)
    scaled = loaded(
        folder,
        luminosity=140.0,
        cross_section={"VH": 0.5, "ttbar": 832.0},
        sum_of_weights={"VH": 1.2e6, "ttbar": "h_sumw"},
    )
    factors = {"VH": 1000 * 140 * 0.5 / 1.2e6, "ttbar": 1000 * 140 * 832 / 2000.0}
    for process in PROCESSES:
        ratio = scaled.weight[scaled.process == process] / plain.weight[plain.process == process]
        np.testing.assert_allclose(ratio, factors.get(process, 1.0), rtol=1e-12)


def test_default_features_leave_out_what_is_no_feature(folder: Path) -> None:
    events = loaded(folder, features=None, cut="passSel && mBB > 0", weight="mcWeight * sf")
    # mBB is in the cut, numbers and weights match a pattern; a TTree has a branch that counts the jets.
    assert set(events.feature_names) - {"njet_pt"} == {"phi1", "phi2"}
    (note,) = [note for note in events.notes if note.startswith("Features: ")]
    assert note.startswith(f"Features: {', '.join(events.feature_names)}; not by their name or use: mBB, ")
    assert any("jet_pt" in note for note in events.notes)


def test_other_formats_take_expressions_too(folder: Path, tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    b = make("VH", 0)
    flat = {name: values for name, values in b.items() if name != "jet_pt"}
    lists = pl.DataFrame({**flat, "jet_pt": ak.to_list(b["jet_pt"])})
    lists.write_parquet(tmp_path / "VH.parquet")
    pl.DataFrame(flat).write_csv(tmp_path / "bkg.csv")
    events = load_events(
        {"VH": tmp_path / "VH.parquet"} | {"ttbar": folder / "ttbar_0.root"},
        signal="VH",
        weight=WEIGHT,
        cut=CUT,
        features=FEATURES,
    )
    X, weight, _ = by_hand("VH")
    mine = events[events.process == "VH"]
    np.testing.assert_allclose(mine.weight, weight, rtol=1e-12)
    np.testing.assert_allclose(mine.X, X, rtol=1e-6)
    table = load_events(
        {"a": tmp_path / "bkg.csv", "b": tmp_path / "VH.parquet"},
        signal="a",
        weight="mcWeight * sf",
        cut="passSel && eventNumber % 2 == 0",
        features=["m2 = mBB ** 2"],
        keep="eventNumber",
    )
    kept = b["passSel"] & (b["eventNumber"] % 2 == 0)
    for process in "ab":
        one = table[table.process == process]
        np.testing.assert_array_equal(one.kept["eventNumber"], b["eventNumber"][kept])
        np.testing.assert_allclose(one.X[:, 0], b["mBB"][kept] ** 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"signal": ["VHH"]}, "signal names the process 'VHH', which has no files; did you mean 'VH'"),
        ({"signal": None}, "name the processes that are signal"),
        ({"signal": list(PROCESSES)}, "every process is signal"),
        ({"tree": "Nominl"}, r"no tree 'Nominl' in VH_0.root.*did you mean 'Nominal'.*\(process 'VH'\)"),
        ({"weight": "mcWeight * pileup"}, "no column 'pileup' in VH_0.root"),
        ({"weight": "mcWeigth"}, "no column 'mcWeigth' in VH_0.root; did you mean 'mcWeight'"),
        ({"weight": "log(mcWeight)"}, r"every event needs a finite weight, but 'log\(mcWeight\)' is nan in row"),
        ({"weight": "jet_pt"}, "weight.*not one number per event but the shape|several|does not hold one"),
        ({"weight": "jet_pt * 2"}, r"the weight 'jet_pt \* 2' cannot be used: it has not one number per event"),
        ({"features": ["jet_pt"]}, "branch 'jet_pt' of VH_0.root does not hold one number|does not hold one value"),
        ({"features": ["a = mBB", "a = phi1"]}, "the feature 'a' is defined twice"),
        ({"features": ["HT = summ(jet_pt)"]}, "the feature 'HT' .* there is no function 'summ'; did you mean 'sum'"),
        ({"cut": "mBB > 1e9"}, "none of 2,400 events passes the cut"),
        ({"cut": "runNumber == 300001"}, r"no event of the process 'VH' passes the cut \(VH_0.root\)"),
        ({"cross_section": {"VH": 1.0}}, "process 'VH' has a cross section, which needs a luminosity"),
        ({"cross_section": {"VH": 1.0}, "luminosity": 1.0}, "needs a sum of weights"),
        (
            {"cross_section": {"VH": 1.0}, "luminosity": 1.0, "sum_of_weights": {"VH": "h_sum"}},
            r"no histogram 'h_sum' in VH_0.root \(process 'VH'\); did you mean 'h_sumw'",
        ),
        ({"cross_section": {"VH": 0.0}, "luminosity": 1.0, "sum_of_weights": {"VH": 1.0}}, "must be a positive number"),
        ({"sum_of_weights": {"VH": 1.0}}, "has a sum of weights and no cross section"),
    ],
)
def test_bad_input_gets_one_sentence(folder: Path, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        loaded(folder, **change)
    assert "\n" not in str(caught.value)


def test_a_missing_file_names_its_process(folder: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file .*nothing.root.*\(process 'data'\)"):
        load_events({**paths(folder), "data": folder / "nothing.root"}, signal=SIGNAL)
    with pytest.raises(InputError, match=r"no file matches .*zz_\*.root' \(process 'data'\)"):
        load_events({**paths(folder), "data": str(folder / "zz_*.root")}, signal=SIGNAL)
    with pytest.raises(InputError, match="belong to processes"):
        load_events(folder / "VH_0.root", label=None, luminosity=3.0)


def test_chunks_change_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = loaded(folder)
    monkeypatch.setattr("fivesigma.datasets.root._STEP", 37)
    pieces = loaded(folder)
    np.testing.assert_array_equal(pieces.X, whole.X)
    np.testing.assert_array_equal(pieces.weight, whole.weight)
    np.testing.assert_array_equal(pieces.kept["eventNumber"], whole.kept["eventNumber"])
