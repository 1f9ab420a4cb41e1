"""Ntuples as they are: one or more files per process, weights that are products, jagged branches, TTree and RNTuple."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest

from fivesigma import ScoredEvents, Varied, scan, yield_shifts
from fivesigma.datasets import Events, load_events
from fivesigma.errors import InputError

uproot = pytest.importorskip("uproot")

PROCESSES = ("VH", "ggH", "ttbar", "Zjets", "Wjets")
SIGNAL = ["VH", "ggH"]
WEIGHT, CUT = "mcWeight * puWeight * sf", "passSel && jet_pt[0] > 45 && count(jet_pt) >= 2"
FEATURES = ["mBB", "j1 = jet_pt[0]", "HT = sum(jet_pt)", "dphi = abs(phi1 - phi2)"]
N = 400
#: Trees with the scale of their jets, and how many events they have beyond N.
TREES = {"Nominal": (1.0, 0), "JES_up": (1.03, 21), "JES_down": (0.97, -17)}
JAGGED = r"400 \* var \* float64"
VH_ALONE = dict.fromkeys(PROCESSES) | {"VH": 1.0}
UNVARIED = "Wjets"  # a process without varied trees


def make(process: str, part: int, tree: str = "Nominal") -> dict[str, Any]:
    """Branches of one tree, from NumPy; varied trees have other events, and another number of them."""
    scale, more = TREES[tree]
    n = N + more
    rng = np.random.default_rng([PROCESSES.index(process), part, list(TREES).index(tree)])
    n_jets = rng.integers(0, 6, n)
    return {
        "mBB": rng.normal(110, 20, n).astype(np.float32),
        "phi1": rng.uniform(-3, 3, n).astype(np.float32),
        "phi2": rng.uniform(-3, 3, n).astype(np.float32),
        "jet_pt": ak.unflatten(scale * (rng.exponential(40, n_jets.sum()) + 20), n_jets),
        "mcWeight": np.where(rng.random(n) < 0.2, -1.0, 1.0) * rng.uniform(0.5, 2, n),
        "puWeight": rng.uniform(0.8, 1.2, n).astype(np.float32),
        "sf": rng.uniform(0.9, 1.1, n),
        "passSel": rng.random(n) < 0.8,
        "eventNumber": rng.integers(2**53, 2**62, n),
        "runNumber": np.full(n, 300000 + part),
    }


def write(path: Path, trees: dict[str, dict[str, Any]], kind: str) -> None:
    with uproot.recreate(path) as file:
        for tree, branches in trees.items():
            if kind == "rntuple":
                file.mkrntuple(tree, branches)
            else:
                file.mktree(tree, {name: _type(values) for name, values in branches.items()})
                file[tree].extend(branches)
        file["h_sumw"] = np.histogram([0.5], bins=1, range=(0, 1), weights=[1000.0])


def _type(values: Any) -> Any:
    return "var * float64" if isinstance(values, ak.Array) else values.dtype


@pytest.mark.parametrize("kind", ["ttree", "rntuple"])
def test_friend_trees_of_one_file_are_read_together(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    branches = make("VH", 0)
    friend = {name: branches[name] for name in ("puWeight", "phi2", "eventNumber")}
    main = {name: values for name, values in branches.items() if name not in friend or name == "eventNumber"}
    write(tmp_path / "one.root", {"Nominal": branches}, kind)
    late = friend | {"eventNumber": np.zeros(N, dtype=np.int64)}  # the first tree's own is taken
    write(tmp_path / "two.root", {"Nominal": main, "more": late}, kind)
    write(tmp_path / "short.root", {"Nominal": main, "more": {name: v[:-1] for name, v in friend.items()}}, kind)
    monkeypatch.setattr("fivesigma.datasets.root._ROWS", 37)

    def read(name: str, tree: str) -> Events:
        asked: dict[str, Any] = {"weight": WEIGHT, "cut": CUT, "features": FEATURES, "keep": ["eventNumber"]}
        return load_events(tmp_path / name, tree=tree, label=None, **asked)

    one, two = read("one.root", "Nominal"), read("two.root", "Nominal + more")
    np.testing.assert_array_equal(one.X, two.X)
    np.testing.assert_array_equal(one.weight, two.weight)
    np.testing.assert_array_equal(one.kept["eventNumber"], two.kept["eventNumber"])
    with pytest.raises(InputError, match=r"short.root that are read together .*'Nominal' 400, 'more' 399"):
        read("short.root", "Nominal + more")
    with pytest.raises(InputError, match=r"no tree 'mor' in two.root.*did you mean 'more'"):
        read("two.root", "Nominal + mor")


@pytest.fixture(scope="module", params=["ttree", "rntuple"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp(request.param)
    for process in PROCESSES:
        for part in range(2 if process == "ttbar" else 1):
            trees = [tree for tree in TREES if tree == "Nominal" or process != UNVARIED]
            write(out / f"{process}_{part}.root", {t: make(process, part, t) for t in trees}, request.param)
    return out


def paths(folder: Path) -> dict[str, Any]:
    return {
        "VH": str(folder / "VH_*.root"),
        "ggH": folder / "ggH_0.root",
        "ttbar": [str(folder / "ttbar_0.root"), str(folder / "ttbar_1.root")],
        "Zjets": folder / "Zjets_0.root",
        "Wjets": folder / "Wjets_0.root",
    }


def loaded(folder: Path, **options: Any) -> Events:
    settings = {"signal": SIGNAL, "tree": "Nominal", "weight": WEIGHT, "cut": CUT, "features": FEATURES}
    return load_events(paths(folder), **(settings | {"keep": ["eventNumber"]} | options))


def by_hand(process: str, tree: str = "Nominal") -> tuple[Any, ...]:
    """Features, weights and event numbers of a process, by NumPy and awkward alone."""
    found: list[list[Any]] = [[], [], []]
    for part in range(2 if process == "ttbar" else 1):
        b = make(process, part, tree)
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


def in_categories(X: Any, weight: Any, edges: Any) -> Any:
    """Yields of categories in the energy of the jets, by NumPy."""
    category = np.digitize(X[:, 2].astype(np.float32), edges[:-1]) - 1
    return np.array([weight[category == i].sum() for i in range(len(edges) - 1)])


@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
def test_varied_trees_have_the_yields_of_numpy(folder: Path) -> None:
    """Other events, in other numbers; a process without varied trees is as in the nominal events."""
    edges = np.array([-np.inf, 200.0, 320.0, np.inf])
    some = {process: files for process, files in paths(folder).items() if process != UNVARIED}
    options: dict[str, Any] = {"signal": SIGNAL, "weight": WEIGHT, "cut": CUT, "features": FEATURES}
    up, down = (load_events(some, tree=tree, **options) for tree in ("JES_up", "JES_down"))
    nominal = loaded(folder)

    def varied(events: Events) -> Varied:
        return Varied(events.column("HT"), events.weight, events.is_signal, events.process)

    scored = ScoredEvents(nominal.column("HT"), nominal.is_signal, nominal.weight, process=nominal.process)
    systematics = {"JES": (varied(up), varied(down))}
    shifts = yield_shifts(edges, scored, systematics=systematics)
    for process in PROCESSES:
        by_tree = {tree: by_hand(process, tree if process != UNVARIED else "Nominal") for tree in TREES}
        expected = {tree: in_categories(X, weight, edges) for tree, (X, weight, _) in by_tree.items()}
        found = shifts.nominal[process].sum_of_weights, shifts.up["JES"][process], shifts.down["JES"][process]
        for tree, values in zip(TREES, found, strict=True):
            np.testing.assert_allclose(values, expected[tree], rtol=1e-12, err_msg=f"{process} {tree}")
    assert len({len(nominal), len(up), len(down)}) == 3
    cut = scan(scored, rule="peak", systematics=systematics, min_effective=1).cut
    at_cut = yield_shifts([cut, np.inf], scored, systematics=systematics).up["JES"]["ttbar"]
    X, weight, _ = by_hand("ttbar", "JES_up")
    np.testing.assert_allclose(at_cut, in_categories(X, weight, np.array([cut, np.inf])), rtol=1e-12)
    assert up.process is not None
    lacking: dict[str, Any] = {
        "JES": (replace(varied(up), process=np.where(up.process == "ggH", "bbH", up.process)), None)
    }
    with pytest.raises(InputError, match="JES up has the process 'bbH', which the nominal events lack"):
        yield_shifts(edges, scored, systematics=lacking)


def test_a_file_may_name_its_tree(folder: Path) -> None:
    options: dict[str, Any] = {"signal": "VH", "weight": WEIGHT, "features": ["mBB"]}
    mixed: dict[str, Any] = {"VH": f"{folder / 'VH_0.root'}:JES_up", "Wjets": folder / "Wjets_0.root"}
    events = load_events(mixed, **options)
    assert np.count_nonzero(events.process == "VH") == N + TREES["JES_up"][1]
    with pytest.raises(
        InputError, match=r"VH_0.root must have one tree.*choose one with tree= or --tree \(process 'VH'\)"
    ):
        load_events({**mixed, "VH": folder / "VH_0.root"}, **options)


def test_normalisation(folder: Path) -> None:
    plain = loaded(folder)
    scaled = loaded(
        folder,
        luminosity=140.0,
        cross_section=dict.fromkeys(PROCESSES) | {"VH": 0.5, "ttbar": 832.0},
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
        {"VH": tmp_path / "VH.parquet", "ttbar": f"{folder / 'ttbar_0.root'}:Nominal"},
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
        ({"luminosity": 1.0}, "a luminosity is given and no cross section, so that it would change nothing"),
        (
            {"luminosity": 1.0, "cross_section": {"VH": 1.0}, "sum_of_weights": {"VH": 1.0}},
            "process 'ggH' has no cross section, while 'VH' has one: give it one, or None",
        ),
        ({"signal": ["VHH"]}, "signal names the process 'VHH', which has no files; did you mean 'VH'"),
        ({"signal": None}, "name the processes that are signal with signal= or --signal"),
        ({"signal": list(PROCESSES)}, "every process is signal"),
        ({"tree": "Nominl"}, r"no tree 'Nominl' in VH_0.root.*did you mean 'Nominal'.*\(process 'VH'\)"),
        ({"weight": "mcWeight * pileup"}, r"no column 'pileup' in VH_0.root; .*\(process 'VH'\)$"),
        ({"cut": "foo > 1"}, r"no column 'foo' in VH_0.root; .*\(process 'VH'\)$"),
        ({"weight": "mcWeigth"}, "no column 'mcWeigth' in VH_0.root; did you mean 'mcWeight'"),
        (
            {"weight": "log(mcWeight)"},
            r"every event needs a finite weight, but 'log\(mcWeight\)' is nan in row .*VH_0.root.*\(process 'VH'\)$",
        ),
        ({"weight": "jet_pt"}, rf"'jet_pt' of VH_0.root does not hold one value per event but the shape {JAGGED}"),
        ({"weight": "jet_pt", "cut": None, "features": ["mBB"]}, rf"one value per event but the shape {JAGGED}"),
        (
            {"weight": "jet_pt * 2"},
            rf"the weight 'jet_pt \* 2' cannot be used: it has not one number per event but the shape {JAGGED}; pick",
        ),
        ({"cut": "jet_pt > 30"}, r"the cut 'jet_pt > 30' .* but the shape 400 \* var \* bool; .*\(process 'VH'\)$"),
        ({"features": ["jet_pt"]}, rf"'jet_pt' of VH_0.root does not hold one value per event but the shape {JAGGED}"),
        ({"features": ["jet_pt"], "cut": None}, rf"of VH_0.root does not hold one value .* the shape {JAGGED}; pick"),
        ({"features": ["a = mBB", "a = phi1"]}, "the feature 'a' is defined twice"),
        ({"features": ["HT = summ(jet_pt)"]}, "the feature 'HT' .* there is no function 'summ'; did you mean 'sum'"),
        ({"cut": "mBB > 1e9"}, "none of 2,400 events passes the cut"),
        ({"cut": "runNumber == 300001"}, r"no event of the process 'VH' passes the cut \(VH_0.root\)"),
        ({"cross_section": VH_ALONE}, "process 'VH' has a cross section, which needs a luminosity"),
        ({"cross_section": VH_ALONE, "luminosity": 1.0}, "needs a sum of weights"),
        (
            {"cross_section": VH_ALONE, "luminosity": 1.0, "sum_of_weights": {"VH": "h_sum"}},
            r"no histogram 'h_sum' in VH_0.root \(process 'VH'\); did you mean 'h_sumw'",
        ),
        (
            {"cross_section": VH_ALONE | {"VH": 0.0}, "luminosity": 1.0, "sum_of_weights": {"VH": 1.0}},
            "must be a positive number",
        ),
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
