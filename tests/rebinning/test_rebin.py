"""Merging the bins of workspaces: against pyhf, against all partitions, from histograms, and what is refused."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fivesigma
from fivesigma import InputError, rebin
from fivesigma._types import IntArray
from fivesigma.categories.floors import Floors
from fivesigma.categories.one_score.profiled_cells import Cells
from fivesigma.categories.workspace import discovery_significance, pyhf_model, read_workspace
from fivesigma.cli import main
from fivesigma.likelihood.histfactory import WorkspaceModel
from fivesigma.rebinning.fine_bins import FineBins, TemplateCells, merge_bins, read_model
from tests.rebinning.random_workspaces import random_workspace

pyhf = pytest.importorskip("pyhf")
pytestmark = pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")  # pyhf 0.7.6 uses it


def by_channel(model: Any, values: Any) -> dict[str, Any]:
    return {name: np.asarray(values)[where] for name, where in model.config.channel_slices.items()}


def random_firsts(rng: np.random.Generator, size: int) -> IntArray:
    inner = rng.choice(np.arange(1, size), rng.integers(0, size - 1), replace=False)
    return np.append(0, np.sort(inner)).astype(np.intp)


@pytest.mark.parametrize("seed", range(100))
def test_merged_bins_have_the_sums_of_pyhf(seed: int) -> None:
    """Yields at any parameters of all bins, the constraints of the errors, and the observations."""
    rng = np.random.default_rng(seed)
    fine = random_workspace(seed, (6, 4))
    before = copy.deepcopy(fine)
    sizes = {"SR0": 6, "SR1": 4}
    firsts = {name: random_firsts(rng, size) for name, size in sizes.items() if seed % 3 or name == "SR0"}
    merged = merge_bins(read_workspace(fine), firsts)
    assert fine == before
    old, new = (pyhf.Workspace(one).model() for one in (fine, merged))
    at_old, at_new = (np.array(model.config.suggested_init()) for model in (old, new))
    shared = [name for name in old.config.par_order if old.config.param_set(name).n_parameters == 1]
    for name in shared:
        low, high = old.config.param_set(name).suggested_bounds[0]
        value = rng.uniform(max(low, -2), min(high, 2))
        for model, pars in ((old, at_old), (new, at_new)):
            pars[model.config.par_slice(name)] = value
    yields, sums = by_channel(old, old.expected_actualdata(at_old)), by_channel(new, new.expected_actualdata(at_new))
    for name, values in yields.items():
        first = firsts.get(name, np.arange(sizes[name]))
        np.testing.assert_allclose(sums[name], np.add.reduceat(values, first), rtol=1e-10)
        channel = next(c for c in fine["channels"] if c["name"] == name)
        errors = np.square([m["data"] for s in channel["samples"] for m in s["modifiers"] if m["type"] == "staterror"])
        nominal = [s["data"] for s in channel["samples"] if s["name"] != "signal"]
        by_hand = np.sqrt(np.add.reduceat(errors.sum(axis=0), first)) / np.add.reduceat(np.sum(nominal, axis=0), first)
        np.testing.assert_allclose(new.config.param_set(f"staterror_{name}").sigmas, by_hand, rtol=1e-10)
        wjets = channel["samples"][2]
        square = np.square(next(m["data"] for m in wjets["modifiers"] if m["type"] == "shapesys"))
        factors = np.add.reduceat(wjets["data"], first) ** 2 / np.add.reduceat(square, first)
        np.testing.assert_allclose(new.config.param_set(f"fakes_{name}").factors, factors, rtol=1e-10)
        observed = {entry["name"]: entry["data"] for one in (fine, merged) for entry in one["observations"]}
        np.testing.assert_allclose(sum(observed[name]), sum(fine["observations"][int(name[-1])]["data"]), rtol=1e-12)


def pyhf_uncertainty(workspace: dict[str, Any]) -> float:
    """Uncertainty of the strength at one, from the information in pyhf's expected data, auxiliary ones included."""
    model = pyhf_model(workspace)
    config = model.config
    start = np.array(config.suggested_init(), dtype=np.float64)
    start[config.poi_index] = 1.0
    expected = np.asarray(model.expected_data(start), dtype=np.float64)
    variance = expected.copy()
    auxiliary = config.nmaindata
    for name in config.auxdata_order:
        settings = config.param_set(name)
        if settings.pdf_type == "normal":
            variance[auxiliary : auxiliary + settings.n_parameters] = np.square(settings.width())
        auxiliary += settings.n_parameters
    moving = [k for k, fixed in enumerate(config.suggested_fixed()) if not fixed or k == config.poi_index]
    rows = []
    for k in moving:
        step = 1e-4 * max(abs(start[k]), 1.0) * np.eye(start.size)[k]
        high, low = (np.asarray(model.expected_data(start + side), dtype=np.float64) for side in (step, -step))
        rows.append((high - low) / (2 * step[k]))
    slopes = np.array(rows)
    seen = variance > 0
    information = (slopes[:, seen] / variance[seen]) @ slopes[:, seen].T
    return float(np.sqrt(np.linalg.pinv(information)[moving.index(config.poi_index), moving.index(config.poi_index)]))


def cells_of(model: WorkspaceModel, goal: str) -> Cells:
    """All channels of a model as cells, without floors."""
    fine = FineBins.of(model, [channel.name for channel in model.channels])
    return fine.cells(fine.allowed(Floors()), goal, None)


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_likelihood_is_that_of_pyhf(seed: int, local: bool) -> None:
    workspace = read_workspace(random_workspace(seed, local=local))
    model = read_model(workspace)
    theirs = pyhf.Workspace(workspace).model()
    p, rng = model.parameters, np.random.default_rng(seed)
    theta = rng.normal(0, 1, p.init.size)
    pars = np.array(theirs.config.suggested_init())
    for name, value in zip(p.names, p.init + p.scale * theta, strict=True):
        pars[theirs.config.par_slice(name)] = value
    for strength in (0.0, 1.0, 2.5):
        pars[theirs.config.poi_index] = strength
        expected = by_channel(theirs, theirs.expected_actualdata(pars))
        for channel in model.channels:
            np.testing.assert_allclose(model.yields(channel, theta, strength), expected[channel.name], rtol=1e-11)
    discovery, measurement = (cells_of(model, goal) for goal in ("discovery", "measurement"))
    every = np.concatenate([np.arange(i + 1, j) for i, j in zip(*discovery.ends, strict=True)])
    z = np.sqrt(2 * discovery.between(every).lowest(far=True).objective)
    assert z == pytest.approx(discovery_significance(workspace), rel=1e-6)
    sigma = 1 / np.sqrt(2 * measurement.between(every).lowest().objective)
    assert sigma == pytest.approx(pyhf_uncertainty(workspace), rel=1e-7)
    assert FineBins.of(model, ()).fixed.uncertainty == pytest.approx(sigma, rel=1e-9)
    assert isinstance(discovery, TemplateCells)
    counts = discovery.merge(every)
    step, gradient = 1e-5, model.expand(counts, theta / 3).gradient
    numeric = [
        (model.value(counts, theta / 3 + step * d) - model.value(counts, theta / 3 - step * d)) / (2 * step)
        for d in np.eye(theta.size)
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5)


def test_the_uncertainty_of_mu_is_that_of_the_hessian() -> None:
    workspace = random_workspace(5, (6,))
    model = pyhf.Workspace(workspace).model()
    start = np.array(model.config.suggested_init())
    data = np.asarray(model.expected_data(start))

    def half(pars: Any) -> float:
        return float(np.squeeze(pyhf.infer.mle.twice_nll(pars, data, model))) / 2

    h, n = 1e-3, start.size
    hessian = np.empty((n, n))
    for i, j in itertools.product(range(n), repeat=2):
        a, b = h * np.eye(n)[i], h * np.eye(n)[j]
        hessian[i, j] = (half(start + a + b) - half(start + a - b) - half(start - a + b) + half(start - a - b)) / (
            4 * h * h
        )
    poi = model.config.poi_index
    assert pyhf_uncertainty(workspace) == pytest.approx(np.sqrt(np.linalg.inv(hessian)[poi, poi]), rel=1e-4)


def figure_of(fine: dict[str, Any], firsts: dict[str, Any], goal: str) -> float:
    """Figure of merged bins, by our likelihood, which is pyhf's (tested above) and faster."""
    merged = merge_bins(fine, firsts)
    model = read_model(merged)
    cells = cells_of(model, goal)
    every = np.concatenate([np.arange(i + 1, j) for i, j in zip(*cells.ends, strict=True)])
    return float(np.sqrt(2 * cells.between(every).lowest().objective)) ** (-1 if goal == "measurement" else 1)


@pytest.mark.parametrize("goal", ["discovery", "measurement"])
@pytest.mark.parametrize("seed", range(2))
def test_no_merging_is_better(seed: int, goal: str) -> None:
    """All ways to merge two channels into four bins."""
    fine = random_workspace(seed, (5, 4), local=seed % 2 == 0)
    found = rebin(fine, 4, goal=goal, min_effective=0)
    figures = []
    for k in (1, 2, 3):
        for one in itertools.combinations(range(1, 5), k - 1):
            for other in itertools.combinations(range(1, 4), 3 - k):
                firsts = {"SR0": np.array([0, *one]), "SR1": np.array([0, *other])}
                figures.append(figure_of(fine, firsts, goal))
    best = min(figures) if goal == "measurement" else max(figures)
    sign = -1 if goal == "measurement" else 1
    assert found.figure == pytest.approx(best, abs=1e-3)
    assert sign * (found.bound - best) >= -1e-6
    assert found.gap == pytest.approx(abs(found.bound - found.figure), abs=1e-5)
    assert sign * (found.before - best) >= -1e-6
    assert sum(map(len, found.edges.values())) == 4


def test_some_channels_are_merged_and_others_stay() -> None:
    fine = random_workspace(2, (7, 4))
    given = rebin(fine, {"SR0": 3}, min_effective=0)
    assert list(given.edges) == ["SR0"]
    assert len(given.edges["SR0"]) == 3
    assert given.workspace["channels"][1] == fine["channels"][1]
    asked = rebin(fine, 3, channels=["SR0"], min_effective=0)
    assert asked.edges == given.edges
    best = max(
        figure_of(fine, {"SR0": np.array([0, i, j])}, "discovery") for i, j in itertools.combinations(range(1, 7), 2)
    )
    assert given.significance == pytest.approx(best, abs=1e-3)
    both = rebin(fine, {"SR1": 2, "SR0": 3}, min_effective=0)
    assert {name: len(first) for name, first in both.edges.items()} == {"SR0": 3, "SR1": 2}


def test_observations_are_merged_and_not_looked_at() -> None:
    fine = random_workspace(3, (12,))
    found = rebin(fine, 4, min_effective=0)
    other = copy.deepcopy(fine)
    other["observations"][0]["data"] = [1e4 * k for k in range(12)]
    again = rebin(other, 4, min_effective=0)
    assert again.edges == found.edges
    assert again.significance == found.significance
    first = found.edges["SR0"]
    assert again.workspace["observations"][0]["data"] == np.add.reduceat(np.arange(12) * 1e4, first).tolist()


def test_floors_hold() -> None:
    fine = random_workspace(4, (20,))
    least = 250.0
    found = rebin(fine, 4, min_background=least, min_effective=0)
    samples = found.workspace["channels"][0]["samples"]
    assert np.sum([s["data"] for s in samples if s["name"] != "signal"], axis=0).min() >= least
    assert found.bound <= rebin(fine, 4, min_effective=0).bound + 1e-9
    effective = rebin(fine, 3, min_effective=200)
    samples = effective.workspace["channels"][0]["samples"]
    squares = np.sum(
        [np.square(m["data"]) for s in samples for m in s["modifiers"] if m["type"] == "staterror"], axis=0
    )
    b = np.sum([s["data"] for s in samples if s["name"] != "signal"], axis=0)
    assert (b * b / squares).min() >= 200 * (1 - 1e-9)


def test_fixed_parameters_stay_fixed() -> None:
    fine = random_workspace(6, (8,))
    fine["measurements"][0]["config"]["parameters"][2] |= {"fixed": True, "inits": [0.8]}
    found = rebin(fine, 3, min_effective=0)
    best = max(
        figure_of(fine, {"SR0": np.array([0, i, j])}, "discovery") for i, j in itertools.combinations(range(1, 8), 2)
    )
    assert found.significance == pytest.approx(best, abs=1e-3)


def histograms(channel: str = "") -> dict[str, Any]:
    """A signal and a background with a variation, as histograms of three packages."""
    hist, boost_histogram = pytest.importorskip("hist"), pytest.importorskip("boost_histogram")
    x = np.linspace(0, 1, 24)
    values = {
        "VH": 5 * x**3,
        "tt_bb": 100 - 70 * x,
        "tt_bb_JESUp": (100 - 70 * x) * (1.05 + 0.1 * x),
        "tt_bb_JESDown": (100 - 70 * x) * (0.95 - 0.1 * x),
        "data_obs": np.arange(24.0),
    }
    out = {}
    for k, (name, data) in enumerate(values.items()):
        axis = (hist if k % 2 else boost_histogram).axis.Regular(24, -1, 1)
        kind = hist.Hist if k % 2 else boost_histogram.Histogram
        histogram = kind(axis, storage=boost_histogram.storage.Weight())
        histogram.view().value, histogram.view().variance = data, 0.1 * data
        out[channel + name] = histogram
    return out


def test_histograms_become_a_workspace(tmp_path: Path) -> None:
    uproot = pytest.importorskip("uproot")
    found = rebin(histograms(), 4, signal="VH")
    samples = found.workspace["channels"][0]["samples"]
    assert [sample["name"] for sample in samples] == ["VH", "tt_bb"]
    assert [m["type"] for m in samples[1]["modifiers"]] == ["staterror", "histosys"]
    assert samples[1]["modifiers"][1]["name"] == "JES"
    assert (
        found.workspace["observations"][0]["data"] == np.add.reduceat(np.arange(24.0), found.edges["channel"]).tolist()
    )
    axis = np.linspace(-1, 1, 25)
    np.testing.assert_allclose(found.binning["channel"], [*axis[found.edges["channel"]], 1.0])
    with uproot.recreate(tmp_path / "templates.root") as file:
        for name, histogram in histograms("SR/").items():
            file[name] = histogram
    again = rebin(tmp_path / "templates.root", 4, signal="VH")
    assert again.edges == {"SR": found.edges["channel"]}
    assert again.significance == pytest.approx(found.significance, rel=1e-9)
    nested = rebin({"SR": histograms()}, 4, signal="VH")
    assert nested.edges == again.edges


def test_a_workspace_of_events_finds_what_categorise_finds() -> None:
    """512 even bins of the events that `categorise` keeps, which may discard some: the same significance to 0.01."""
    rng = np.random.default_rng(0)
    n = 60_000
    y = np.arange(n) % 2
    score = rng.normal(1.5 * y)
    weight = np.where(y == 1, 150.0, 10_000.0) * 2 / n * np.ones(n)
    systematics: Any = {
        "scale": (fivesigma.Varied(score=score + 0.05), fivesigma.Varied(score=score - 0.05)),
        "norm": (fivesigma.Varied(weight=np.where(y == 0, 1.1, 1.0) * weight), None),
    }
    options = {"systematics": systematics, "mc_statistics": False}
    least = 25 * float(weight[0])  # the same floor for both: all background weights are equal
    from_events = fivesigma.categorise(score, y, weight, 8, rule="peak", min_effective=25, **options)
    edges = np.append(np.linspace(from_events.edges[0], 4.5, 512), np.inf)
    fine = fivesigma.yield_shifts(edges, score, y, weight, systematics)
    workspace = _workspace(fine)
    found = rebin(workspace, 8, min_background=least)
    assert found.significance == pytest.approx(from_events.significance, abs=0.01)


def _workspace(shifts: Any) -> dict[str, Any]:
    samples = []
    for name, rows in shifts.nominal.items():
        modifiers: list[dict[str, Any]] = []
        if rows.signal:
            modifiers.append({"name": "mu", "type": "normfactor", "data": None})
        for key in shifts.up if not rows.signal else ():
            data = {"hi_data": shifts.up[key][name].tolist(), "lo_data": shifts.down[key][name].tolist()}
            modifiers.append({"name": key, "type": "histosys", "data": data})
        samples.append({"name": name, "data": rows.sum_of_weights.tolist(), "modifiers": modifiers})
    total = np.sum([rows.sum_of_weights for rows in shifts.nominal.values()], axis=0)
    return {
        "channels": [{"name": "SR", "samples": samples}],
        "observations": [{"name": "SR", "data": total.tolist()}],
        "measurements": [{"name": "m", "config": {"poi": "mu", "parameters": []}}],
        "version": "1.0.0",
    }


def noisy(rng: np.random.Generator | None, n_events: int = 2_000) -> dict[str, Any]:
    """A peak over a falling background that tilts, as templates of so many simulated events, or exact ones."""
    x = np.linspace(0, 1, 200)
    s, b = np.exp(-(((x - 0.85) / 0.15) ** 2) / 2), np.exp(-4 * x)
    s, b = 60 * s / s.sum(), 6_000 * b / b.sum()

    def drawn(yields: Any) -> list[float]:
        weight = yields.sum() / n_events
        out: list[float] = (yields if rng is None else weight * rng.poisson(yields / weight)).tolist()
        return out

    tilt = {"hi_data": drawn(b * (1 + 0.15 * (x - 0.3))), "lo_data": drawn(b * (1 - 0.15 * (x - 0.3)))}
    modifiers = [
        {"name": "tilt", "type": "histosys", "data": tilt},
        {"name": "norm", "type": "normsys", "data": {"hi": 1.1, "lo": 0.9}},
    ]
    mu = {"name": "mu", "type": "normfactor", "data": None}
    samples = [
        {"name": "signal", "data": drawn(s), "modifiers": [mu]},
        {"name": "background", "data": drawn(b), "modifiers": modifiers},
    ]
    return {
        "channels": [{"name": "SR", "samples": samples}],
        "observations": [{"name": "SR", "data": (s + b).tolist()}],
        "measurements": [{"name": "m", "config": {"poi": "mu", "parameters": []}}],
        "version": "1.0.0",
    }


def test_averaged_templates_choose_bins_that_are_better_in_truth() -> None:
    truth, gains = noisy(None), []
    for seed in range(20, 28):
        fine = noisy(np.random.default_rng(seed))
        found = {smooth: rebin(fine, 8, min_background=75.0, smooth=smooth) for smooth in (False, True)}
        z = {key: figure_of(truth, {"SR": np.array(one.edges["SR"])}, "discovery") for key, one in found.items()}
        gains.append(z[True] - z[False])
        total = sum(found[True].workspace["channels"][0]["samples"][1]["data"])
        assert total == pytest.approx(sum(fine["channels"][0]["samples"][1]["data"]))
    assert np.mean(gains) > 0


def broken(change: str) -> Any:
    fine = random_workspace(0, (6,))
    sample = fine["channels"][0]["samples"][1]
    if change == "nan":
        sample["data"][2] = float("nan")
    elif change == "varied nan":
        next(m for m in sample["modifiers"] if m["type"] == "histosys")["data"]["hi_data"][1] = None
    elif change == "length":
        sample["data"].append(1.0)
    elif change == "shapefactor":
        sample["modifiers"].append({"name": "free", "type": "shapefactor", "data": None})
    elif change == "unknown":
        sample["modifiers"].append({"name": "free", "type": "magic", "data": None})
    elif change == "poi":
        fine["measurements"][0]["config"]["poi"] = "nu"
    elif change == "no samples":
        del fine["channels"][0]["samples"]
    elif change == "no measurement":
        fine["measurements"] = []
    elif change == "factor":
        wjets = fine["channels"][0]["samples"][2]
        next(m for m in wjets["modifiers"] if m["type"] == "normsys")["data"]["lo"] = 0.0
    elif change == "schema":
        sample["modifiers"].append({"name": "w_norm", "type": "normsys", "data": {"hi": 1.0, "lo": 1.0, "mid": 1.0}})
    return fine


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("nan", r"^SR0/top holds NaN or infinity"),
        ("varied nan", r"^SR0/top, histosys 'shape0' holds NaN"),
        ("length", r"^SR0/top has 7 numbers where its channel has 6 bins$"),
        ("shapefactor", r"^SR0/top, shapefactor 'free': a shapefactor is free in each bin"),
        ("unknown", r"^SR0/top, magic 'free' is no modifier of pyhf"),
        ("poi", r"parameter of interest"),
        ("no samples", r"^this is no HistFactory workspace of pyhf: KeyError at 'samples'$"),
        ("no measurement", r"it has no measurement"),
        ("factor", r"^SR0/wjets, normsys 'w_norm' has a factor that is not positive"),
        ("schema", r"^pyhf does not accept this workspace"),
    ],
)
def test_bad_workspaces_are_refused_in_one_sentence(change: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        rebin(broken(change), 3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bins": 7}, "^7 bins are asked for and the channels have only 6; bins can be merged, not split$"),
        ({"n_bins": {"SR0": 9}}, "^9 bins are asked for and channel 'SR0' has only 6"),
        ({"n_bins": 0}, "^n_bins must be a number, at least one for each of 1 channels, got 0$"),
        ({"n_bins": 2.5}, "^n_bins must be a number"),
        ({"n_bins": 3, "channels": ["SR9"]}, "^there is no channel 'SR9' in the workspace; did you mean"),
        ({"n_bins": 3, "goal": "limit"}, "^goal must be one of 'discovery', 'measurement', got 'limit'$"),
        ({"n_bins": 3, "min_background": 1e9}, "^3 bins are not possible: each needs s >= 0, b >= 1e"),
        ({"n_bins": 3, "measurement": "other"}, "^there is no measurement 'other'; there are 'm'$"),
        ({"n_bins": {"SR0": 2}, "channels": []}, "^n_bins and channels name different channels"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        rebin(random_workspace(0, (6,)), **options)


def test_channels_without_background_must_be_merged() -> None:
    fine = random_workspace(0, (6, 3))
    for sample in fine["channels"][1]["samples"][1:]:
        sample["data"][1] = 0.0
    with pytest.raises(InputError, match=r"^channel 'SR1' is not merged and has 0 background of .* in bin 1"):
        rebin(fine, {"SR0": 3})


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        rebin(tmp_path / "none.json", 3)
    (tmp_path / "text.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="is no JSON"):
        rebin(tmp_path / "text.json", 3)
    (tmp_path / "list.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(InputError, match="no HistFactory workspace"):
        rebin(tmp_path / "list.json", 3)
    (tmp_path / "text.root").write_text("none", encoding="utf-8")
    with pytest.raises(InputError, match="ROOT file"):
        rebin(tmp_path / "text.root", 3, signal="VH")
    (tmp_path / "good.json").write_text(json.dumps(random_workspace(0, (6,))), encoding="utf-8")
    assert len(rebin(tmp_path / "good.json", 2, min_effective=0).edges["SR0"]) == 2


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (None, {}, "which process is the signal"),
        (None, {"signal": "VHH"}, "^there is no template of the signal 'VHH'; did you mean 'VH'"),
        ("tt_bb_JESDown", {"signal": "VH"}, "^channel/tt_bb_JESUp has no template of the other side$"),
        ("tt_bb", {"signal": "VH"}, "its process has no nominal template$"),
        (None, {"signal": "VH", "variation": "{process}Up"}, "^variation must hold {process}, {systematic} and Up"),
    ],
)
def test_bad_templates_are_refused(change: str | None, options: dict[str, Any], message: str) -> None:
    templates = histograms()
    if change is not None:
        del templates[change]
    with pytest.raises(InputError, match=message):
        rebin(templates, 3, **options)


@pytest.mark.parametrize("ending", ["_JES_up", "__JES__1up", "_JESUpp", "_JES_DOWN"])
def test_variations_named_otherwise_do_not_become_backgrounds(ending: str) -> None:
    templates = histograms()
    for side in ("_JESUp", "_JESDown"):
        moved = templates.pop(f"tt_bb{side}")
    templates[f"tt_bb{ending}"] = moved
    with pytest.raises(InputError, match=f"^channel/tt_bb{ending} would be a process, but .* variation of 'tt_bb'"):
        rebin(templates, 3, signal="VH")


def test_histograms_of_several_lengths_are_refused() -> None:
    short = histograms()["VH"][4:].project(0)
    with pytest.raises(InputError, match=r"^the histograms of channel 'channel' have 20 to 24 bins"):
        rebin(histograms() | {"short": short}, 3, signal="VH")


def test_what_is_no_workspace_at_all_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"^rebin takes a workspace, histograms by name, or a path of either, got list$"
    ):
        rebin([1], 3)  # type: ignore[arg-type]
    workspace = random_workspace(0, (6,))
    workspace["measurements"][0]["config"]["parameters"] = []
    with pytest.raises(
        InputError, match=r"'lumi' is of type lumi, and its measurement gives it no auxdata and sigmas$"
    ):
        rebin(workspace, 3)


def test_the_command_writes_everything(tmp_path: Path) -> None:
    pytest.importorskip("uproot")
    source = tmp_path / "fine.json"
    source.write_text(json.dumps(random_workspace(1, (12, 8), local=False)), encoding="utf-8")
    new, picture, page, cards = (tmp_path / name for name in ("new.json", "bins.png", "page.html", "cards"))
    options = ["-o", str(new), "--plot", str(picture), "--report", str(page), "--combine", str(cards)]
    done = CliRunner().invoke(main, ["rebin", str(source), "-k", "SR0=3,SR1=2", *options])
    assert done.exit_code == 0, done.output
    workspace = json.loads(new.read_text(encoding="utf-8"))
    assert [len(channel["samples"][0]["data"]) for channel in workspace["channels"]] == [3, 2]
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = page.read_text(encoding="utf-8")
    assert "<svg" in text
    assert "<script" not in text
    assert "src=" not in text
    assert (cards / "datacard.txt").exists()
    assert "SR0:\n  Binning: [0, " in done.output
    again = CliRunner().invoke(main, ["rebin", str(source), "-k", "5", "-o", str(new)])
    assert again.exit_code == 1
    assert "is there already" in again.output
    result = CliRunner().invoke(main, ["rebin", str(source), "-k", "5", "--goal", "measurement", "--json"])
    assert json.loads(result.stdout)["gap"] < 0.01
    assert CliRunner().invoke(main, ["rebin", str(source), "-k", "five"]).exit_code == 2
