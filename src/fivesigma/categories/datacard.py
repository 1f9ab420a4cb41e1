"""A HistFactory workspace as a datacard for combine, the fit program of CMS: a text and a ROOT file of templates."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import explained, written_whole
from fivesigma._types import Array
from fivesigma.categories import Categories
from fivesigma.categories.workspace import read_workspace, to_pyhf
from fivesigma.errors import InputError

FLOOR = 1e-6  # events in a bin that would have none, or fewer
_LARGEST_CHANGE = 0.1  # of a template, by the floor
_THRESHOLD = 10  # effective events of a bin above which combine gives it one Gaussian parameter
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_RESERVED = ("data_obs", "data_sig", "r", "process", "bin", "rate", "observation")


def to_combine(source: Categories | Mapping[str, Any], folder: str | Path, *, force: bool = False) -> Path:
    """Write ``datacard.txt`` and ``shapes.root`` for combine.

    ============================  ==============================================================================
    in the workspace              in the card
    ============================  ==============================================================================
    normfactor of the POI         a signal process; its strength is combine's ``r``
    another normfactor            ``rateParam`` with its start and its bounds
    normsys, lumi                 ``lnN``
    histosys, also with normsys   ``shape``, or ``lnN`` if it scales all bins alike
    staterror                     errors of the templates, and ``autoMCStats``
    shapesys                      one ``shape`` for each bin
    a parameter that is fixed     no line; a fixed normfactor scales its template
    ============================  ==============================================================================

    Where both programs define a parameter alike, their likelihoods are equal: yields, free normalisations, and the
    statistical errors of one simulated process. They differ where the definitions do. An ``lnN`` is an exponential of
    its parameter; a normsys is one outside of one standard deviation and a polynomial within, and lumi is linear. An
    ``lnN`` with unequal sides is interpolated in another way. A ``shape`` moves the normalisation as an ``lnN`` and
    the fractions of the bins by a polynomial; a histosys moves the yields themselves. With several processes combine
    scales the statistical error of each with its rate, and pyhf that of their sum. A shapesys has a Poisson constraint
    in pyhf and a Gaussian one here. All of them agree at the nominal yields and at one standard deviation.

    Parameters
    ----------
    source : Categories or dict
        Categories, which become a workspace by `to_pyhf`, or a workspace of pyhf with one measurement or more, of
        which the first is taken.
    folder : path
        Where to write; it is made if it is not there.
    force : bool, default=False
        Whether to replace a card that is there.

    Returns
    -------
    pathlib.Path
        The card.

    Raises
    ------
    InputError
        If a name cannot stand in a card, if a modifier has no counterpart (shapefactor), or if a template is so
        negative that the floor of 1e-6 events in a bin would change it by more than a tenth.

    Warns
    -----
    UserWarning
        If bins without events, or with fewer, got the floor; the card names them.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import fivesigma
    >>> y = np.arange(400) % 2
    >>> two = fivesigma.categorise(np.arange(400) + 200.0 * y, y, np.where(y == 1, 0.1, 1.0), 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     card = fivesigma.to_combine(two, folder).read_text()
    >>> print(card.splitlines()[1])
    imax 1
    """
    folder = Path(folder)
    card, shapes = folder / "datacard.txt", folder / "shapes.root"
    if not force and (card.exists() or shapes.exists()):
        raise InputError(f"{folder} holds a datacard already; choose another folder, or pass force=True or --force")
    model = _Model.of(to_pyhf(source) if isinstance(source, Categories) else read_workspace(source))
    templates = model.templates()
    text = model.card(shapes.name)
    with explained(folder, "written"):
        folder.mkdir(exist_ok=True)
    with written_whole(card) as new_card, written_whole(shapes) as new_shapes:
        with need("uproot").recreate(new_shapes) as file:
            for name, (values, errors) in templates.items():
                file[name] = _histogram(name.rpartition("/")[2], values, errors)
        new_card.write_text(text, encoding="utf-8")
    if model.floored:
        warnings.warn(
            f"combine takes no bin without events, so {len(model.floored)} got {FLOOR:g}: {model.floored[0]}"
            + (" and others, which the card names" if len(model.floored) > 1 else ""),
            stacklevel=2,
        )
    return card


@dataclass
class _Process:
    """One sample of one channel, in the terms of combine."""

    values: Array
    errors: Array
    signal: bool
    with_errors: bool = False
    lnn: dict[str, tuple[float, float]] = field(default_factory=dict)  # down, up
    shape: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    rates: dict[str, tuple[float, float, float]] = field(default_factory=dict)  # start and bounds


@dataclass
class _Model:
    """What a card says: channels of processes, and data."""

    channels: dict[str, dict[str, _Process]]
    data: dict[str, Array]
    floored: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, workspace: Mapping[str, Any]) -> _Model:
        """Translate a checked workspace."""
        config = workspace["measurements"][0]["config"]
        settings = {entry["name"]: entry for entry in config.get("parameters", ())}
        channels = {
            _check_name(channel["name"], "channel"): {
                _check_name(sample["name"], "process"): _process(sample, config["poi"], settings)
                for sample in channel["samples"]
            }
            for channel in workspace["channels"]
        }
        observed = {entry["name"]: np.asarray(entry["data"], dtype=np.float64) for entry in workspace["observations"]}
        model = cls(channels, observed)
        roles: dict[str, bool] = {}
        for channel, processes in channels.items():
            for name, process in processes.items():
                if roles.setdefault(name, process.signal) != process.signal:
                    raise InputError(f"{name!r} is signal in one channel and not in channel {channel!r}")
        if not any(roles.values()):
            poi = config["poi"]
            raise InputError(f"no sample has the parameter of interest {poi!r} as a normfactor, so there is no signal")
        model._merge_kinds()
        return model

    def _merge_kinds(self) -> None:
        """Give a parameter one kind in all of the card: what is a shape anywhere is one everywhere."""
        every = [process for processes in self.channels.values() for process in processes.values()]
        shapes = {name for process in every for name in process.shape}
        for process in every:
            for name in shapes & process.lnn.keys():
                down, up = process.lnn.pop(name)
                low, high = process.shape.get(name, (process.values, process.values))
                process.shape[name] = (down * low, up * high)

    def templates(self) -> dict[str, tuple[Array, Array]]:
        """Histograms of the ROOT file by name: values and errors. Bins without events get the floor."""
        out: dict[str, tuple[Array, Array]] = {}

        def add(name: str, values: Array, errors: Array) -> None:
            if name in out:
                raise InputError(f"two templates would be called {name!r}; rename a process or a systematic")
            low = values < FLOOR
            out[name] = np.where(low, FLOOR, values), errors
            if not low.any():
                return
            change = np.abs(out[name][0] - values).sum()
            if change > _LARGEST_CHANGE * max(float(values.sum()), FLOOR * values.size):
                raise InputError(
                    f"template {name!r} is negative or empty in so many bins that combine cannot hold it; merge bins, "
                    "or leave the process or the systematic out"
                )
            self.floored.append(f"{name} in bin {', '.join(str(k) for k in np.flatnonzero(low))}")

        for channel, processes in self.channels.items():
            out[f"{channel}/data_obs"] = (self.data[channel], np.sqrt(np.maximum(self.data[channel], 0.0)))
            for name, process in processes.items():
                add(f"{channel}/{name}", process.values, process.errors)
                for systematic, sides in process.shape.items():
                    for ending, side in zip(("Down", "Up"), sides, strict=True):
                        add(f"{channel}/{name}_{systematic}{ending}", side, process.errors)
        return out

    def card(self, shapes: str) -> str:
        """Text of the card."""
        columns = [(c, name, p) for c, processes in self.channels.items() for name, p in processes.items()]
        names = {name: p.signal for _, name, p in columns}
        signals = [name for name, signal in names.items() if signal]
        number = {name: -k for k, name in enumerate(signals)}
        number |= {name: k + 1 for k, name in enumerate(name for name, signal in names.items() if not signal)}
        rows: list[list[str]] = [
            ["bin", "", *(channel for channel, _, _ in columns)],
            ["process", "", *(name for _, name, _ in columns)],
            ["process", "", *(str(number[name]) for _, name, _ in columns)],
            ["rate", "", *("-1" for _ in columns)],
        ]
        factors, shaped = ({name for *_, p in columns for name in getattr(p, kind)} for kind in ("lnn", "shape"))
        rows += [[name, "lnN", *(_lnn(p.lnn.get(name)) for *_, p in columns)] for name in sorted(factors)]
        rows += [[name, "shape", *("1" if name in p.shape else "-" for *_, p in columns)] for name in sorted(shaped)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        aligned = ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows]
        rates = [
            f"{rate} rateParam {channel} {name} {start!r} [{low!r},{high!r}]"
            for channel, name, p in columns
            for rate, (start, low, high) in p.rates.items()
        ]
        statistics = [
            f"{channel} autoMCStats {_THRESHOLD} {int(any(p.signal and p.with_errors for p in processes.values()))}"
            for channel, processes in self.channels.items()
            if any(p.with_errors for p in processes.values())
        ]
        lines = [
            "# For combine, written by fivesigma; all rates are in the templates.",
            f"imax {len(self.channels)}",
            f"jmax {len(names) - 1}",
            "kmax *",
            *(f"# raised to {FLOOR:g} events: {place}" for place in self.floored),
            _RULE,
            f"shapes * * {shapes} $CHANNEL/$PROCESS $CHANNEL/$PROCESS_$SYSTEMATIC",
            _RULE,
            f"bin {' '.join(self.channels)}",
            f"observation {' '.join('-1' for _ in self.channels)}",
            _RULE,
            *aligned[:4],
            _RULE,
            *aligned[4:],
            *rates,
            *statistics,
        ]
        return "\n".join(lines) + "\n"


_RULE = "-" * 40


def _check_name(name: Any, what: str) -> str:
    """Refuse a name that combine, or ROOT behind it, would read as something else."""
    if isinstance(name, str) and _NAME.fullmatch(name) and name not in _RESERVED:
        return name
    other = re.sub(r"\W", "_", str(name), flags=re.ASCII)
    hint = other if _NAME.fullmatch(other) and other not in _RESERVED else f"{what}_{other}"
    raise InputError(
        f"{what} {str(name)[:60]!r} cannot stand in a datacard, whose names are letters, digits and underscores "
        f"after a letter and not words of combine; rename it, to {hint[:60]!r} for example"
    )


def _process(sample: Mapping[str, Any], poi: str, settings: Mapping[str, Any]) -> _Process:
    values = np.asarray(sample["data"], dtype=np.float64)
    out = _Process(values, np.zeros_like(values), signal=False)
    scale = 1.0
    for modifier in sample["modifiers"]:
        name, kind, data = modifier["name"], modifier["type"], modifier["data"]
        entry = settings.get(name, {})
        fixed = bool(entry.get("fixed", False))
        if kind == "normfactor" and name == poi:
            out.signal = True
        elif kind == "normfactor" and fixed:
            scale *= float(entry.get("inits", [1.0])[0])
        elif kind == "normfactor":
            low, high = entry.get("bounds", [(0.0, 10.0)])[0]
            start = float(entry.get("inits", [1.0])[0])
            out.rates[_check_name(name, "parameter")] = (start, float(low), float(high))
        elif kind == "staterror":
            out.errors = np.asarray(data, dtype=np.float64)
            out.with_errors = True
        elif not fixed:
            _add_constrained(out, modifier, entry)
    if scale != 1.0:
        out.values, out.errors = scale * out.values, scale * out.errors
        out.shape = {name: (scale * low, scale * high) for name, (low, high) in out.shape.items()}
    return out


def _add_constrained(out: _Process, modifier: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
    name, data = _check_name(modifier["name"], "systematic"), modifier["data"]
    factors: tuple[float, float] | None
    if modifier["type"] == "shapesys":
        for k, error in enumerate(data):
            step = np.where(np.arange(out.values.size) == k, float(error), 0.0)
            if error:
                out.shape[f"{name}_bin{k}"] = (out.values - step, out.values + step)
        return
    if modifier["type"] == "normsys":
        factors = float(data["lo"]), float(data["hi"])
    elif modifier["type"] == "lumi":
        width = float(entry["sigmas"][0])
        factors = 1.0 / (1.0 + width), 1.0 + width
    else:
        low, high = (np.asarray(data[side], dtype=np.float64) for side in ("lo_data", "hi_data"))
        factors = _factors(out.values, low, high)
        if factors is None:
            out.shape[name] = (low, high)
            return
    down, up = out.lnn.get(name, (1.0, 1.0))  # of a parameter that has two kinds of modifiers in a sample
    out.lnn[name] = (down * factors[0], up * factors[1])


def _factors(values: Array, low: Array, high: Array) -> tuple[float, float] | None:
    """Factors by which a variation scales all bins alike, if it does."""
    if not values.any():
        return None
    largest = np.abs(values).argmax()
    down, up = (float(side[largest] / values[largest]) for side in (low, high))
    alike = all(np.allclose(side, k * values, rtol=1e-9, atol=0.0) for side, k in ((low, down), (high, up)))
    return (down, up) if alike and min(down, up) > 0 else None


def _lnn(sides: tuple[float, float] | None) -> str:
    if sides is None:
        return "-"
    down, up = sides
    return f"{up:.9g}" if np.isclose(down * up, 1.0, rtol=1e-12) else f"{down:.9g}/{up:.9g}"


def _histogram(name: str, values: Array, errors: Array) -> Any:
    """A TH1D with one bin for each value and its error, and nothing beyond."""
    identify = need("uproot.writing.identify")
    variances = np.concatenate([[0.0], errors**2, [0.0]])
    centres = np.arange(values.size) + 0.5
    return identify.to_TH1x(
        fName=name,
        fTitle="",
        data=np.concatenate([[0.0], values, [0.0]]),
        fEntries=float(values.size),
        fTsumw=float(values.sum()),
        fTsumw2=float(variances.sum()),
        fTsumwx=float((values * centres).sum()),
        fTsumwx2=float((values * centres**2).sum()),
        fSumw2=variances,
        fXaxis=identify.to_TAxis(fName="xaxis", fTitle="", fNbins=values.size, fXmin=0.0, fXmax=float(values.size)),
    )
