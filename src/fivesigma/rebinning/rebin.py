"""Merging the fine bins of a workspace so that its profiled significance, or its uncertainty of mu, is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.summary import Summary, digits
from fivesigma._types import Array, IntArray
from fivesigma.categories.floors import Floors
from fivesigma.categories.one_score.dual import Optimum, programs, search
from fivesigma.categories.workspace import discovery_significance
from fivesigma.errors import InputError, did_you_mean
from fivesigma.likelihood.histfactory import profile_gammas
from fivesigma.likelihood.measurement import uncertainty_of
from fivesigma.likelihood.profile import root_of
from fivesigma.rebinning.bins_page import draw_all, draw_channel, write_page
from fivesigma.rebinning.template_cells import TemplateCells, TemplateDiscovery, template_cells
from fivesigma.rebinning.template_files import VARIATION, Source, workspace_of
from fivesigma.rebinning.workspaces import (
    Workspace,
    merge_bins,
    pyhf_uncertainty,
    read_model,
)

__all__ = ["Rebinned", "rebin"]

GOALS = ("discovery", "measurement")
MIN_EFFECTIVE = 10.0
_REPEATED, _JUDGED = 10, 64  # candidates of the search


@dataclass(frozen=True, repr=False, eq=False)
class Rebinned:
    """A workspace with merged bins.

    Attributes
    ----------
    workspace : dict
        For pyhf; what was not merged is as it was.
    edges : dict of str to list of int
        For each merged channel the first fine bin of every new one.
    binning : dict of str to list of float
        The same as edges of the axis, where the templates came from histograms that have one.
    goal : {"discovery", "measurement"}
    fine : dict
        The workspace before.
    before : float
        Significance (or uncertainty of mu) of the fine bins, from our likelihood.
    bound : float
        Significance that no merging into so many bins exceeds, or uncertainty that none falls below.
    gap : float
        Distance of these bins from the bound; zero if they are the best.
    measurement : str or None
        Name of the measurement in the workspace; the first by default.
    """

    workspace: Workspace
    edges: dict[str, list[int]]
    binning: dict[str, list[float]]
    goal: str
    fine: Workspace
    before: float
    bound: float
    gap: float
    measurement: str | None
    _pulls: dict[str, Any]

    @cached_property
    def significance(self) -> float:
        """Expected discovery significance of the new bins, fitted by pyhf."""
        return discovery_significance(self.workspace, self._pulls, self.measurement)

    @cached_property
    def uncertainty(self) -> float:
        """Expected uncertainty of the strength at one in the new bins, from the information in pyhf's expected data."""
        return pyhf_uncertainty(self.workspace, self.measurement)

    @property
    def figure(self) -> float:
        """What the bins were merged for: the significance, or the uncertainty of mu."""
        return self.uncertainty if self.goal == "measurement" else self.significance

    @property
    def poi(self) -> str:
        """Name of the strength of the signal."""
        measurements = self.workspace["measurements"]
        return str(next(m for m in measurements if self.measurement in {None, m["name"]})["config"]["poi"])

    def plot(self, channel: str | None = None, ax: Any = None) -> Any:
        """Draw the fine bins of a channel, by default the first, and the edges of the new ones.

        Parameters
        ----------
        channel : str, optional
        ax : matplotlib axes, optional
            Where to draw; the current axes if not given.
        """
        return draw_channel(self, next(iter(self.edges)) if channel is None else channel, ax)

    def save_plot(self, path: str | Path) -> Path:
        """Draw all merged channels to a file; its ending says the format."""
        draw_all(self).savefig(path)
        return Path(path)

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML page: before, after, and which bins went where."""
        return write_page(self, path)

    def _rows(self) -> list[tuple[str, str, str, str]]:
        """Channel, fine bins, s + b and s of every new bin."""
        out = []
        for new, old in zip(self.workspace["channels"], self.fine["channels"], strict=True):
            first = self.edges.get(new["name"], [])
            last = [*(k - 1 for k in first[1:]), len(old["samples"][0]["data"]) - 1]
            signal = [s["data"] for s in new["samples"] if any(m["name"] == self.poi for m in s["modifiers"])]
            total, s = (
                np.sum([np.zeros(len(last)), *data], axis=0) if first else ()
                for data in ([sample["data"] for sample in new["samples"]], signal)
            )
            where = [f"{i}-{j}" if i < j else str(i) for i, j in zip(first, last, strict=False)]
            out += [(new["name"], at, digits(n), digits(own)) for at, n, own in zip(where, total, s, strict=True)]
        return out

    def _summary(self) -> Summary:
        measured = self.goal == "measurement"
        what = "uncertainty of mu" if measured else "significance"
        sizes = ", ".join(f"{len(first)} in {name}" for name, first in self.edges.items())
        return Summary(
            f"Rebinned: {sum(map(len, self.edges.values()))} bins ({sizes}), {what} {self.figure:.4f} by pyhf",
            ("channel", "fine bins", "s + b", "s"),
            self._rows(),
            [
                f"{what} of the fine bins {self.before:.4f}; {_bins_of(self.fine, self.edges)} bins were merged",
                f"no such merging {'falls below' if measured else 'exceeds'} {self.bound:.4f}, {self.gap:.4f} away",
            ],
        )

    def __repr__(self) -> str:
        return self._summary().text()

    def _repr_html_(self) -> str:
        return self._summary().html()


def _bins_of(workspace: Workspace, channels: Mapping[str, Any]) -> int:
    return sum(len(c["samples"][0]["data"]) for c in workspace["channels"] if c["name"] in channels)


def rebin(
    workspace: Source,
    n_bins: int | Mapping[str, int],
    *,
    channels: Sequence[str] | None = None,
    goal: str = "discovery",
    min_background: float = 0.0,
    min_effective: float = MIN_EFFECTIVE,
    measurement: str | None = None,
    signal: str | Sequence[str] | None = None,
    variation: str = VARIATION,
    smooth: bool = False,
) -> Rebinned:
    """Merge neighbouring fine bins so that the profiled significance of the whole workspace is best.

    The likelihood is that of pyhf: all parameters that bins share are profiled together, those of single bins
    (staterror, shapesys) in each new bin. The search is exact up to `Rebinned.gap`. The observations are merged like
    the templates and are not looked at.

    Parameters
    ----------
    workspace : dict, path, or mapping of str to histogram
        A HistFactory workspace of pyhf, or a JSON file of one. Or templates: a ROOT file, or a mapping of names to
        histograms (hist, boost-histogram, uproot), which may be nested by channel. They become a workspace with a
        ``histosys`` for each variation and a ``staterror`` where the histograms have variances; ``data_obs`` is the
        observation.
    n_bins : int or mapping of str to int
        New bins in all, which the channels share by what each is worth; or of each channel.
    channels : sequence of str, optional
        Channels to merge, by default all with more than one bin, or those that `n_bins` names. Others count in the
        likelihood and stay as they are.
    goal : {"discovery", "measurement"}, default="discovery"
        The largest discovery significance, or the smallest uncertainty of the strength mu at mu = 1.
    min_background : float, default=0.0
        Background that every new bin must have; it must be positive anyway.
    min_effective : float, default=10.0
        Effective background events that every new bin must have, by the errors of its staterror, if it has one.
    measurement : str, optional
        Name of the measurement that has the parameter of interest; by default the first.
    signal : str or sequence of str, optional
        Names of the signal processes among templates.
    variation : str, default="{process}_{systematic}Up"
        How the names of varied templates are made; those of the other side have Down in the place of Up.
    smooth : bool, default=False
        Whether the bins are chosen on templates that are averaged along the bins, as `categorise` does with
        systematics, so that less noise of few simulated events is followed; of the best, the one is taken that is also
        good as it is. `bound` and `gap` are then those of the averaged templates. The new workspace is not averaged.

    Returns
    -------
    Rebinned

    Examples
    --------
    >>> import numpy as np
    >>> import fivesigma
    >>> x = np.linspace(0, 1, 40)
    >>> modifiers = [{"name": "mu", "type": "normfactor", "data": None}]
    >>> tilt = {"hi_data": list(90 - 60 * x), "lo_data": list(110 - 110 * x + 10 * x)}
    >>> samples = [
    ...     {"name": "signal", "data": list(4 * x**3), "modifiers": modifiers},
    ...     {"name": "background", "data": list(100 - 80 * x),
    ...      "modifiers": [{"name": "tilt", "type": "histosys", "data": tilt}]},
    ... ]
    >>> workspace = {
    ...     "channels": [{"name": "SR", "samples": samples}],
    ...     "observations": [{"name": "SR", "data": [100.0] * 40}],
    ...     "measurements": [{"name": "m", "config": {"poi": "mu", "parameters": []}}],
    ...     "version": "1.0.0",
    ... }
    >>> found = fivesigma.rebin(workspace, 5)
    >>> len(found.edges["SR"]), found.significance <= found.bound + 1e-6, found.gap < 0.01
    (5, True, True)
    """
    if goal not in GOALS:
        raise InputError(f"goal must be one of {', '.join(map(repr, GOALS))}, got {goal!r}")
    floors = Floors.checked(min_background, min_effective)
    fine, axes = workspace_of(workspace, signal, variation)
    chosen = _chosen(fine, n_bins, channels)
    model = read_model(fine, measurement)
    shares, total = _numbers(fine, chosen, n_bins)
    for channel, n, b in model.counted([c for c in model.channels if c.name not in chosen]):
        if not (b > 0).all():
            k = int(b.argmin())
            raise InputError(
                f"channel {channel.name!r} is not merged and has {b[k]:g} background of {n[k]:g} events in bin {k}; a "
                "fit needs some in every bin: merge it too"
            )
    real = template_cells(model, chosen, floors, goal, shares)
    cells = template_cells(model, chosen, floors, goal, shares, smooth=True) if smooth else real
    if programs(cells, total, np.zeros(cells.constant.size)).final.max() == -np.inf:
        raise InputError(
            f"{total} bins are not possible: each needs s >= 0, {floors}; ask for fewer bins or lower the floors"
        )
    found = _sure(cells, search(cells, total), real if smooth else None)
    figure = root_of if goal == "discovery" else uncertainty_of
    firsts = {
        name: np.append(0, own[:-1]).astype(np.intp) for name, own in zip(chosen, cells.split(found.edges), strict=True)
    }
    bound = figure(found.bound)
    return Rebinned(
        merge_bins(fine, firsts),
        {name: first.tolist() for name, first in firsts.items()},
        {name: [*axes[name][first].tolist(), float(axes[name][-1])] for name, first in firsts.items() if name in axes},
        goal,
        fine,
        figure(_fine_objective(real)),
        bound,
        abs(bound - figure(found.objective)),
        measurement,
        _pulls(real, found.edges, found.theta) if isinstance(real, TemplateDiscovery) else {},
    )


def _chosen(workspace: Workspace, n_bins: Any, channels: Sequence[str] | None) -> list[str]:
    """Names of the channels to merge, in the order of the workspace."""
    sizes = {channel["name"]: len(channel["samples"][0]["data"]) for channel in workspace["channels"]}
    if channels is not None:
        names = [channels] if isinstance(channels, str) else list(channels)
    else:
        names = list(n_bins) if isinstance(n_bins, Mapping) else [name for name, size in sizes.items() if size > 1]
    for name in names:
        if name not in sizes:
            hint = did_you_mean(name, list(sizes)) or f"; there are {', '.join(map(repr, sizes))}"
            raise InputError(f"there is no channel {name!r} in the workspace{hint}")
    if isinstance(n_bins, Mapping) and set(names) != set(n_bins):
        raise InputError("n_bins and channels name different channels; give n_bins alone")
    if not names:
        raise InputError("no channel has more than one bin, so that there is nothing to merge")
    return [name for name in sizes if name in names]


def _numbers(workspace: Workspace, chosen: list[str], n_bins: Any) -> tuple[list[int] | None, int]:
    """Bins of each channel, if they are given, and of all."""
    sizes = {c["name"]: len(c["samples"][0]["data"]) for c in workspace["channels"] if c["name"] in chosen}
    asked = {"": n_bins} if not isinstance(n_bins, Mapping) else {name: n_bins[name] for name in sizes}
    for name, want in asked.items():
        if isinstance(want, bool) or not isinstance(want, int | np.integer) or want < (1 if name else len(sizes)):
            raise InputError(f"n_bins must be a number, at least one for each of {len(sizes)} channels, got {n_bins!r}")
        have = sizes[name] if name else sum(sizes.values())
        if want > have:
            where = f"channel {name!r} has" if name else "the channels have"
            raise InputError(f"{want} bins are asked for and {where} only {have}; bins can be merged, not split")
    shares = list(map(int, asked.values()))
    return (shares if isinstance(n_bins, Mapping) else None), sum(shares)


def _sure(cells: TemplateCells, found: Optimum, real: TemplateCells | None) -> Optimum:
    """Take the best of the candidates, fitted from several starts; the search uses one start.

    With averaged templates the candidate counts that is best where it is worst: averaged, or as it is.
    """
    values = dict(sorted(found.candidates.items(), key=lambda item: -item[1])[:_JUDGED])
    if real is not None:
        for edges, value in values.items():
            values[edges] = min(value, float(real.lowest(np.array(edges)).objective))
    best, most = found, -np.inf
    for edges in sorted(values, key=lambda key: -values[key])[:_REPEATED]:
        if values[edges] <= most:
            break
        again = cells.surely(np.array(edges))
        if (value := min(values[edges], float(again.objective))) > most:
            most = value
            best = found._replace(edges=np.array(edges), objective=float(again.objective), theta=again.theta)
    return best


def _fine_objective(cells: TemplateCells) -> float:
    """F of the fine bins; those without background, or with negative signal, are merged with what follows."""
    edges: list[int] = []
    zero = np.zeros(cells.constant.size)
    for channel, first, n in zip(cells.running, cells.starts, cells.counts, strict=True):
        b = cells.model.yields(channel, zero, 0.0)
        kept = [0]
        for k in range(1, n.size):
            if b[k] - b[kept[-1]] > 1e-9 * b[-1] and (n - b)[k] - (n - b)[kept[-1]] >= -1e-9 * n[-1]:
                kept.append(k)
        kept[-1] = n.size - 1
        edges += [first + k for k in kept if k > 0]
    return float(cells.lowest(np.array(edges)).objective)


def _pulls(cells: TemplateDiscovery, edges: IntArray, theta: Array) -> dict[str, Any]:
    """How far the parameters move in the fit without signal, from where pyhf starts."""
    model, p = cells.model, cells.model.free
    out: dict[str, Any] = dict(zip(p.names, (p.scale * theta).tolist(), strict=True))
    for channel, n, b in model.counted(cells.channels(edges)):
        local = profile_gammas(n, model.parts(channel, theta), b, channel.groups, channel.gammas)
        for g, gamma in zip(channel.gammas, local.gammas, strict=True):
            # pyhf has no gamma where a shapesys is zero.
            out[g.name] = (gamma[np.isfinite(g.precision)] if g.poisson else gamma) - 1
    return out
