"""Datacards, read by a reader of their own: the same yields, and the same significance where both programs agree."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from fivesigma import Normalisation, categorise, discovery_significance, to_combine, to_pyhf
from fivesigma.categories.datacard import FLOOR, _lnn
from fivesigma.errors import InputError

uproot = pytest.importorskip("uproot")
pyhf = pytest.importorskip("pyhf")

pytestmark = pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")  # pyhf 0.7.6 uses it
Array = NDArray[np.float64]


@dataclass
class Card:
    """What a card says, by its own text and its templates alone."""

    columns: list[tuple[str, str, int]]  # channel, process, number
    lines: dict[str, tuple[str, list[str]]]
    rates: dict[str, list[tuple[str, str]]]
    bounds: dict[str, tuple[float, float]]
    statistics: dict[str, tuple[int, int]]
    templates: dict[str, tuple[Array, Array]]

    def values(self, name: str) -> Array:
        return self.templates[name][0]

    @classmethod
    def read(cls, path: Path) -> Card:
        out = cls([], {}, {}, {}, {}, {})
        rows = [line.split() for line in path.read_text().splitlines() if line and line[0] not in "#-"]
        head = {word: row[1:] for word, *rest in rows for row in [[word, *rest]]}
        assert head["kmax"] == ["*"]
        bins, processes = ([row[1:] for row in rows if row[0] == word] for word in ("bin", "process"))
        out.columns = list(zip(bins[1], processes[0], map(int, processes[1]), strict=True))
        assert bins[0] == list(dict.fromkeys(bins[1]))
        assert len(bins[0]) == int(head["imax"][0])
        assert len(set(processes[0])) == int(head["jmax"][0]) + 1
        assert set(head["rate"]) | set(head["observation"]) == {"-1"}
        file, nominal, varied = head["shapes"][2:]
        assert (nominal, varied) == ("$CHANNEL/$PROCESS", "$CHANNEL/$PROCESS_$SYSTEMATIC")
        for row in rows:
            if row[1:2] in (["lnN"], ["shape"]):
                assert len(row) == 2 + len(out.columns)
                assert row[0] not in out.lines
                out.lines[row[0]] = (row[1], row[2:])
            elif row[1:2] == ["rateParam"]:
                name, _, channel, process, start, span = row
                assert float(start) == 1.0
                out.rates.setdefault(name, []).append((channel, process))
                low, high = re.fullmatch(r"\[(.*),(.*)\]", span).groups()  # type: ignore[union-attr]
                out.bounds[name] = float(low), float(high)
            elif row[1:2] == ["autoMCStats"]:
                out.statistics[row[0]] = int(row[2]), int(row[3])
        with uproot.open(path.with_name(file)) as root:
            for key, kind in root.classnames(cycle=False).items():
                if kind.startswith("TH1"):
                    out.templates[key] = (root[key].values(), root[key].errors())
                    assert root[key].values(flow=True)[[0, -1]].tolist() == [0, 0], "combine ignores what is beyond"
        return out


def smooth_step(x: float) -> float:
    return float(np.sign(x)) if abs(x) >= 1 else 0.125 * x * (x * x * (3 * x * x - 10) + 15)


def log_normal(kappa: tuple[float, float], x: float) -> float:
    """An lnN of combine: an exponential, whose two sides are joined within half a standard deviation."""
    down, up = -np.log(kappa[0]), np.log(kappa[1])
    if abs(x) >= 0.5:
        return float(np.exp(x * (up if x > 0 else down)))
    return float(np.exp(x * (0.5 * (up + down) + 0.5 * (up - down) * smooth_step(2 * x))))


class Likelihood:
    """Combine's likelihood, by its documented definitions."""

    def __init__(self, card: Card) -> None:
        self.card = card
        self.channels = list(dict.fromkeys(channel for channel, _, _ in card.columns))
        self.names = [*card.lines, *card.rates]
        self.n_errors = sum(card.values(f"{c}/data_obs").size for c in card.statistics)

    def expected(self, r: float, theta: dict[str, float], pulls: Array) -> dict[str, Array]:
        out, at = {}, 0
        for channel in self.channels:
            total, variance = np.zeros(1), np.zeros(1)
            for k, (where, process, number) in enumerate(self.card.columns):
                if where != channel:
                    continue
                name = f"{channel}/{process}"
                values, errors = self.card.templates[name]
                scale, shape = (r if number <= 0 else 1.0), values / values.sum()
                for systematic, (kind, cells) in self.card.lines.items():
                    if cells[k] == "-":
                        continue
                    x = theta[systematic]
                    if kind == "lnN":
                        sides = [float(part) for part in cells[k].split("/")]
                        scale *= log_normal((1 / sides[0], sides[0]) if len(sides) == 1 else (sides[0], sides[1]), x)
                    else:
                        down, up = (self.card.values(f"{name}_{systematic}{end}") for end in ("Down", "Up"))
                        scale *= log_normal((down.sum() / values.sum(), up.sum() / values.sum()), x)
                        low, high, mid = down / down.sum(), up / up.sum(), values / values.sum()
                        shape = shape + 0.5 * x * ((high - low) + (high + low - 2 * mid) * smooth_step(x))
                for rate, places in self.card.rates.items():
                    scale *= theta[rate] ** places.count((channel, process))
                total = total + scale * values.sum() * shape
                if channel in self.card.statistics and (number > 0 or self.card.statistics[channel][1]):
                    variance = variance + (scale * errors) ** 2
            if channel in self.card.statistics:
                size = np.size(total)
                total = total + pulls[at : at + size] * np.sqrt(variance)
                at += size
            out[channel] = np.asarray(total)
        return out

    def significance(self) -> float:
        """Root of q0 on the expected data."""
        start = {name: float(name in self.card.rates) for name in self.names}
        data = self.expected(1.0, start, np.zeros(self.n_errors))

        def twice_nll(point: Array, r: float) -> float:
            theta = dict(zip(self.names, point, strict=False))
            pulls = point[len(self.names) :]
            found = self.expected(r, theta, pulls)
            constraint = sum(theta[name] ** 2 for name in self.card.lines) + (pulls**2).sum()
            out = constraint
            for channel, nu in found.items():
                if (nu <= 0).any():
                    return 1e10
                out += 2 * (nu - data[channel] * np.log(nu)).sum()
            return float(out)

        begin = np.array([*start.values(), *np.zeros(self.n_errors)])
        bounds = [self.card.bounds.get(name, (-5, 5)) for name in self.names] + [(-5, 5)] * self.n_errors
        if not begin.size:
            return float(np.sqrt(twice_nll(begin, 0.0) - twice_nll(begin, 1.0)))
        best = min(
            minimize(twice_nll, begin + shift, (0.0,), bounds=bounds, tol=1e-14, options={"maxfun": 10**6}).fun
            for shift in (0.0, 0.05)
        )
        return float(np.sqrt(best - twice_nll(begin, 1.0)))


def workspace() -> dict[str, Any]:
    """Two channels, one signal, two backgrounds, nothing uncertain."""
    samples = {
        "SR": {"VH": [1.0, 3.0, 6.0], "top": [50.0, 20.0, 5.0], "Z": [30.0, 12.0, 4.0]},
        "CR": {"VH": [0.1, 0.2], "top": [200.0, 150.0], "Z": [10.0, 20.0]},
    }
    mu = {"name": "mu", "type": "normfactor", "data": None}
    channels = [
        {
            "name": channel,
            "samples": [
                {"name": name, "data": data, "modifiers": [mu] if name == "VH" else []} for name, data in found.items()
            ],
        }
        for channel, found in samples.items()
    ]
    observed = [{"name": c, "data": np.sum(list(found.values()), axis=0).tolist()} for c, found in samples.items()]
    measurement = {"name": "m", "config": {"poi": "mu", "parameters": []}}
    return {"channels": channels, "observations": observed, "measurements": [measurement], "version": "1.0.0"}


def sample(found: dict[str, Any], channel: str, name: str) -> dict[str, Any]:
    samples = next(c for c in found["channels"] if c["name"] == channel)["samples"]
    return next(s for s in samples if s["name"] == name)


def add(found: dict[str, Any], name: str, kind: str, data: Any, process: str, *channels: str) -> dict[str, Any]:
    for channel in channels or ("SR", "CR"):
        modifiers = sample(found, channel, process)["modifiers"]
        modifiers.append({"name": name, "type": kind, "data": data(sample(found, channel, process)["data"])})
    return found


def both(found: dict[str, Any], folder: Path, **settings: str) -> tuple[float, float]:
    """Significance by the card and by pyhf."""
    card = Likelihood(Card.read(to_combine(found, folder / "card"))).significance()
    if not settings:
        return card, discovery_significance(found)
    model = pyhf.Workspace(found).model(modifier_settings={k: {"interpcode": v} for k, v in settings.items()})
    start = model.config.suggested_init()
    data = model.expected_data(start)
    fit = pyhf.infer.mle.fixed_poi_fit(0.0, data, model, return_fitted_val=True, tolerance=1e-12)[1]
    return card, float(np.sqrt(fit - pyhf.infer.mle.twice_nll(np.array(start), data, model)[0]))


def test_yields_come_back(tmp_path: Path) -> None:
    found = workspace()
    add(found, "staterror", "staterror", lambda d: [0.1 * v for v in d], "top")
    card = Card.read(to_combine(found, tmp_path / "card"))
    for channel in found["channels"]:
        for one in channel["samples"]:
            values, errors = card.templates[f"{channel['name']}/{one['name']}"]
            np.testing.assert_array_equal(values, one["data"])
            expected = 0.1 * np.array(one["data"]) if one["name"] == "top" else np.zeros(len(values))
            np.testing.assert_allclose(errors, expected, rtol=1e-12)
    for one in found["observations"]:
        np.testing.assert_array_equal(card.values(f"{one['name']}/data_obs"), one["data"])
    assert [(name, number) for channel, name, number in card.columns if channel == "SR"] == [
        ("VH", 0), ("top", 1), ("Z", 2),
    ]  # fmt: skip
    assert card.statistics == {"SR": (10, 0), "CR": (10, 0)}


class TestWhereBothAgree:
    def test_yields_alone(self, tmp_path: Path) -> None:
        card, ours = both(workspace(), tmp_path)
        assert card == pytest.approx(ours, rel=1e-7)

    def test_free_normalisations(self, tmp_path: Path) -> None:
        found = add(workspace(), "top_norm", "normfactor", lambda _: None, "top")
        settings = {"name": "top_norm", "inits": [1.0], "bounds": [[0.0, 5.0]]}
        found["measurements"][0]["config"]["parameters"].append(settings)
        card, ours = both(found, tmp_path)
        assert card == pytest.approx(ours, rel=1e-6)
        read = Card.read(tmp_path / "card" / "datacard.txt")
        assert read.bounds == {"top_norm": (0.0, 5.0)}
        assert read.rates == {"top_norm": [("SR", "top"), ("CR", "top")]}

    def test_statistical_errors_of_one_background(self, tmp_path: Path) -> None:
        found = workspace()
        for channel in found["channels"]:
            channel["samples"] = [one for one in channel["samples"] if one["name"] != "Z"]
        add(found, "staterror_SR", "staterror", lambda d: [0.2 * v for v in d], "top", "SR")
        card, ours = both(found, tmp_path)
        assert card == pytest.approx(ours, rel=1e-5)
        assert Card.read(tmp_path / "card" / "datacard.txt").statistics == {"SR": (10, 0)}

    def test_log_normal_uncertainties_of_both_sides(self, tmp_path: Path) -> None:
        """pyhf's exponential (code 1) is what an lnN is."""
        found = add(workspace(), "scale", "normsys", lambda _: {"hi": 1.2, "lo": 1 / 1.2}, "top")
        add(found, "scale", "normsys", lambda _: {"hi": 1.05, "lo": 1 / 1.05}, "Z")
        add(found, "theory", "normsys", lambda _: {"hi": 1.1, "lo": 1 / 1.1}, "VH")
        card, ours = both(found, tmp_path, normsys="code1")
        assert card == pytest.approx(ours, rel=1e-6)
        assert card == pytest.approx(discovery_significance(found), rel=2e-3), "its default is close"

    def test_shapes_are_close_for_small_changes(self, tmp_path: Path) -> None:
        def moved(data: list[float]) -> dict[str, Any]:
            values, tilt = np.array(data), np.linspace(-0.06, 0.1, len(data))
            return {"hi_data": (values * (1 + tilt)).tolist(), "lo_data": (values * (1 - tilt)).tolist()}

        found = add(workspace(), "jes", "histosys", moved, "top")
        add(found, "jes", "normsys", lambda _: {"hi": 1.02, "lo": 1 / 1.02}, "top", "SR")
        add(found, "jes", "normsys", lambda _: {"hi": 1.03, "lo": 1 / 1.03}, "Z")
        card, ours = both(found, tmp_path)
        assert card == pytest.approx(ours, rel=5e-3)
        read = Card.read(tmp_path / "card" / "datacard.txt")
        assert {name: kind for name, (kind, _) in read.lines.items()} == {"jes": "shape"}, "one kind in all of the card"
        hi = np.array(sample(found, "SR", "top")["modifiers"][0]["data"]["hi_data"])
        np.testing.assert_allclose(read.values("SR/top_jesUp"), 1.02 * hi)
        np.testing.assert_allclose(read.values("SR/Z_jesDown"), np.array(sample(found, "SR", "Z")["data"]) / 1.03)


def test_other_modifiers(tmp_path: Path) -> None:
    found = add(workspace(), "lumi", "lumi", lambda _: None, "Z")
    add(found, "fakes", "shapesys", lambda d: [0.0, *(0.1 * v for v in d[1:])], "top", "SR")
    add(found, "fixed", "normfactor", lambda _: None, "top", "CR")
    add(found, "off", "normsys", lambda _: {"hi": 1.5, "lo": 0.5}, "top")
    add(found, "odd", "normsys", lambda _: {"hi": 1.3, "lo": 0.9}, "top")
    found["measurements"][0]["config"]["parameters"] += [
        {"name": "lumi", "auxdata": [1.0], "sigmas": [0.02], "bounds": [[0.5, 1.5]], "inits": [1.0]},
        {"name": "fixed", "inits": [2.0], "fixed": True},
        {"name": "off", "inits": [0.0], "fixed": True},
    ]
    card = Card.read(to_combine(found, tmp_path / "card"))
    assert card.lines["lumi"] == ("lnN", ["-", "-", "1.02", "-", "-", "1.02"])
    assert _lnn((0.7 - 2e-16, 1.1 + 0.2)) == "0.7/1.3"
    assert card.lines["odd"][1][1] == "0.9/1.3"
    assert {"fakes_bin1", "fakes_bin2"} <= card.lines.keys()
    assert not {"off", "fixed", "fakes_bin0"} & card.lines.keys()
    assert not card.rates
    np.testing.assert_array_equal(card.values("CR/top"), [400.0, 300.0])
    np.testing.assert_allclose(card.values("SR/top_fakes_bin1Up"), [50.0, 22.0, 5.0])


def test_categories_with_systematics(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(4000) % 2
    score, weight = rng.normal(size=y.size) + y, np.where(y == 1, 0.02, 0.5)
    process = np.where(y == 1, "VH", np.where(rng.random(y.size) < 0.5, "top", "Z"))
    systematics = {"top_scale": Normalisation("top", 0.1), "z_free": Normalisation("Z", None)}
    found = categorise(score, y, weight, 3, process=process, systematics=systematics)
    card = Card.read(to_combine(found, tmp_path / "card"))
    assert list(card.rates) == ["z_free"]
    assert list(card.lines) == ["top_scale"]
    for name, rows in found.by_process.items():
        np.testing.assert_allclose(card.values(f"categories/{name}"), rows.sum_of_weights)
    assert Likelihood(card).significance() == pytest.approx(discovery_significance(to_pyhf(found)), rel=5e-3)


def test_bins_without_events_get_a_floor_that_is_said(tmp_path: Path) -> None:
    found = workspace()
    sample(found, "SR", "Z")["data"][2] = -0.5
    sample(found, "CR", "VH")["data"][0] = 0.0
    with pytest.warns(UserWarning, match=r"2 got 1e-06: SR/Z in bin 2 and others"):
        path = to_combine(found, tmp_path / "card")
    assert "# raised to 1e-06 events: CR/VH in bin 0\n" in path.read_text()
    card = Card.read(path)
    assert card.values("SR/Z").tolist() == [30.0, 12.0, FLOOR]
    assert min(values.min() for values, _ in card.templates.values()) > 0


BAD = [
    (
        lambda w: [part[0].update(name="SR 1") for part in (w["channels"], w["observations"])],
        "channel 'SR 1' cannot stand in a datacard.*to 'SR_1'",
    ),
    (lambda w: sample(w, "SR", "Z").update(name="data_obs"), "process 'data_obs' cannot stand"),
    (lambda w: sample(w, "SR", "Z").update(name="2b"), "to 'process_2b' for example"),
    (lambda w: add(w, "a-b", "normsys", lambda _: {"hi": 1.1, "lo": 0.9}, "top"), "systematic 'a-b' cannot stand"),
    (
        lambda w: add(w, "f", "shapefactor", lambda _: None, "top"),
        "shapefactor .f.: .* a datacard has none",
    ),
    (lambda w: w["measurements"][0]["config"].update(poi="nu"), "no sample has the parameter of interest 'nu'"),
    (lambda w: sample(w, "SR", "Z").update(data=[1.0, 2.0]), "numbers where its channel has"),
    (lambda w: sample(w, "SR", "Z").update(data=[1.0, 2.0, float("nan")]), "SR/Z holds NaN or infinity"),
    (lambda w: sample(w, "SR", "Z").update(data=[1.0, 2.0, -9.0]), "is negative or empty in so many bins"),
    (lambda w: add(w, "s", "normsys", lambda _: {"hi": 1.1, "lo": 0.0}, "top"), "of which there is no logarithm"),
    (lambda w: w.pop("channels"), "this is no HistFactory workspace"),
    (lambda w: w.update(measurements=[]), "this is no HistFactory workspace"),
    (lambda w: sample(w, "CR", "VH")["modifiers"].clear(), "is signal in one channel and not in channel 'CR'"),
]


@pytest.mark.parametrize(("change", "words"), BAD, ids=[str(k) for k in range(len(BAD))])
def test_what_a_card_cannot_hold_is_one_sentence(change: Any, words: str, tmp_path: Path) -> None:
    found = copy.deepcopy(workspace())
    change(found)
    with pytest.raises(InputError, match=words) as caught:
        to_combine(found, tmp_path / "card")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "card").exists()


def test_names_that_would_be_one_histogram_are_refused(tmp_path: Path) -> None:
    def side(data: list[float]) -> dict[str, Any]:
        return {"hi_data": [v + 1 for v in data], "lo_data": [v - 1 for v in data]}

    found = workspace()
    sample(found, "SR", "Z")["name"] = "top_a"
    add(found, "a_b", "histosys", side, "top", "SR")
    add(found, "b", "histosys", side, "top_a", "SR")
    with pytest.raises(InputError, match="two templates would be called 'SR/top_a_bDown'"):
        to_combine(found, tmp_path / "card")


def test_a_card_is_replaced_only_by_force(tmp_path: Path) -> None:
    to_combine(workspace(), tmp_path)
    with pytest.raises(InputError, match="holds a datacard already"):
        to_combine(workspace(), tmp_path)
    assert to_combine(workspace(), tmp_path, force=True).name == "datacard.txt"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["datacard.txt", "shapes.root"]
