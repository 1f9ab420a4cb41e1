"""Merging the fine bins of a workspace so that its profiled significance, or its uncertainty of mu, is best."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.drawing import axes_or_current
from fivesigma._tools.extras import need
from fivesigma._tools.files import write_text
from fivesigma._tools.summary import Shown, Summary, digits
from fivesigma._types import Array
from fivesigma.categories.floors import Floors
from fivesigma.categories.one_score.dual import Optimum, programs, search
from fivesigma.categories.one_score.profiled_cells import Cells
from fivesigma.categories.workspace import Workspace, discovery_significance
from fivesigma.errors import InputError, require_known
from fivesigma.likelihood.histfactory import profile_gammas
from fivesigma.likelihood.profile import root_of, uncertainty_of
from fivesigma.rebinning.fine_bins import FineBins, TemplateCells, merge_bins, read_model
from fivesigma.rebinning.template_files import VARIATION, Source, workspace_of

GOALS = ("discovery", "measurement")
MIN_EFFECTIVE = 10.0
_REPEATED, _JUDGED = 10, 64  # candidates of the search
_STYLE = "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}svg{max-width:100%;height:auto}"


@dataclass(frozen=True, repr=False, eq=False)
class Rebinned(Shown):
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
        """Expected uncertainty of the strength at one in the new bins, from the Hessian of the Asimov likelihood."""
        return FineBins.of(read_model(self.workspace, self.measurement), ()).fixed.uncertainty

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
        channel = next(iter(self.edges)) if channel is None else channel
        if channel not in self.edges:
            raise InputError(f"channel {channel!r} was not merged; there are {', '.join(map(repr, self.edges))}")
        ax = axes_or_current(ax)
        samples = next(c["samples"] for c in self.fine["channels"] if c["name"] == channel)
        total, signal = np.sum([s["data"] for s in samples], axis=0), self._signal(samples)
        edges = np.arange(total.size + 1)
        ax.stairs(total, edges, fill=True, color="0.8", label="s + b")
        if signal.any():
            ax.stairs(signal, edges, color="black", label="signal")
        for k, first in enumerate(self.edges[channel][1:]):
            ax.axvline(first, color="tab:red", linewidth=1, label="new edges" if k == 0 else None)
        ax.set_yscale("log")
        ax.set_ylim(bottom=float(total[total > 0].min(initial=1.0)) / 100)
        ax.set_xlim(0, edges[-1])
        ax.set_xlabel(f"fine bin of {channel}")
        ax.set_ylabel("expected events")
        ax.legend()
        return ax

    def _signal(self, samples: Any) -> Array:
        """Sum of the samples that the strength scales."""
        own = [s["data"] for s in samples if any(m["name"] == self.poi for m in s["modifiers"])]
        return np.asarray(np.sum([np.zeros(len(samples[0]["data"])), *own], axis=0))

    def _figure(self) -> Any:
        """All merged channels, one below the other."""
        figure = need("matplotlib.figure").Figure(figsize=(7, 3 * len(self.edges)), layout="constrained")
        for ax, channel in zip(np.ravel(figure.subplots(len(self.edges))), self.edges, strict=True):
            self.plot(channel, ax)
        return figure

    def save_plot(self, path: str | Path) -> Path:
        """Draw all merged channels to a file; its ending says the format."""
        self._figure().savefig(path)
        return Path(path)

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML page: before, after, and which bins went where."""
        svg = io.StringIO()
        self._figure().savefig(svg, format="svg")
        picture = svg.getvalue()
        what = "Uncertainty of mu" if self.goal == "measurement" else "Significance"
        binning = "".join(
            f"<p>{escape(name)}: <code>Binning: {escape(str(self.binning.get(name, first)))}</code></p>"
            for name, first in self.edges.items()
        )
        text = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Merged bins</title>'
            f"<style>{_STYLE}</style></head><body><h1>Merged bins</h1><p>{what} before {self.before:.4f}, after "
            f"{self.figure:.4f}; bound {self.bound:.4f}, gap {self.gap:.4f}.</p>{picture[picture.index('<svg') :]}"
            f"{self._repr_html_()}{binning}</body></html>\n"
        )
        return write_text(Path(path), text)

    def _summary(self) -> Summary:
        rows = []
        for new, old in zip(self.workspace["channels"], self.fine["channels"], strict=True):
            first = self.edges.get(new["name"], [])
            last = [*(k - 1 for k in first[1:]), len(old["samples"][0]["data"]) - 1]
            total, s = np.sum([sample["data"] for sample in new["samples"]], axis=0), self._signal(new["samples"])
            for i, j, n, own in zip(first, last, total, s, strict=False):
                rows.append((new["name"], f"{i}-{j}" if i < j else str(i), digits(n), digits(own)))
        measured = self.goal == "measurement"
        what, by = ("uncertainty of mu", "") if measured else ("significance", " by pyhf")
        sizes = ", ".join(f"{len(first)} in {name}" for name, first in self.edges.items())
        fine = sum(size for name, size in _sizes(self.fine).items() if name in self.edges)
        return Summary(
            f"Rebinned: {sum(map(len, self.edges.values()))} bins ({sizes}), {what} {self.figure:.4f}{by}",
            ("channel", "fine bins", "s + b", "s"),
            rows,
            [
                f"{what} of the fine bins {self.before:.4f}; {fine} bins were merged",
                f"no such merging {'falls below' if measured else 'exceeds'} {self.bound:.4f}, {self.gap:.4f} away",
            ],
        )


def _sizes(workspace: Workspace) -> dict[str, int]:
    """Number of bins of each channel."""
    return {channel["name"]: len(channel["samples"][0]["data"]) for channel in workspace["channels"]}


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
    the templates and do not influence the choice.

    Parameters
    ----------
    workspace : dict, path, or mapping of str to histogram
        A HistFactory workspace of pyhf, or a JSON file of one. Or templates: a ROOT file, or a mapping of names to
        histograms (hist, boost-histogram, uproot), which may be nested by channel. They become a workspace with a
        ``histosys`` for each variation and a ``staterror`` where the histograms have variances; ``data_obs`` is the
        observation.
    n_bins : int or mapping of str to int
        New bins in all, which the channels share by what each gains; or of each channel.
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
    sizes = _sizes(fine)
    chosen = _choose_channels(sizes, n_bins, channels)
    model = read_model(fine, measurement)
    shares, total = _check_n_bins({name: sizes[name] for name in chosen}, n_bins)
    for channel, n, b in model.counted([c for c in model.channels if c.name not in chosen]):
        if not (b > 0).all():
            k = int(b.argmin())
            raise InputError(
                f"channel {channel.name!r} is not merged and has {b[k]:g} background of {n[k]:g} events in bin {k}; a "
                "fit needs some in every bin: merge it too"
            )
    fine_bins = FineBins.of(model, chosen)
    allowed = fine_bins.allowed(floors)
    cells = real = fine_bins.cells(allowed, goal, shares)
    if smooth:
        cells = FineBins.of(model, chosen, smooth=True).cells(allowed, goal, shares)
    if programs(cells, total, model.start).final.max() == -np.inf:
        raise InputError(
            f"{total} bins are not possible: each needs s >= 0, {floors}; ask for fewer bins or lower the floors"
        )
    found = _make_sure(cells, search(cells, total), real if smooth else None)
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
        figure(float(real.between(fine_bins.finest()).lowest().objective)),
        bound,
        abs(bound - figure(found.objective)),
        measurement,
        _pulls(real, found) if isinstance(real, TemplateCells) else {},
    )


def _choose_channels(sizes: Mapping[str, int], n_bins: Any, channels: Sequence[str] | None) -> list[str]:
    """Names of the channels to merge, in the order of the workspace."""
    if channels is not None:
        names = [channels] if isinstance(channels, str) else list(channels)
    else:
        names = list(n_bins) if isinstance(n_bins, Mapping) else [name for name, size in sizes.items() if size > 1]
    for name in names:
        require_known(name, sizes, f"there is no channel {name!r} in the workspace")
    if isinstance(n_bins, Mapping) and set(names) != set(n_bins):
        raise InputError("n_bins and channels name different channels; give n_bins alone")
    if not names:
        raise InputError("no channel has more than one bin, so that there is nothing to merge")
    return [name for name in sizes if name in names]


def _check_n_bins(sizes: Mapping[str, int], n_bins: Any) -> tuple[list[int] | None, int]:
    """Bins of each chosen channel, if they are given, and of all."""
    asked = {name: n_bins[name] for name in sizes} if isinstance(n_bins, Mapping) else {"": n_bins}
    for name, want in asked.items():
        if isinstance(want, bool) or not isinstance(want, int | np.integer) or want < (1 if name else len(sizes)):
            raise InputError(f"n_bins must be a number, at least one for each of {len(sizes)} channels, got {n_bins!r}")
        have = sizes[name] if name else sum(sizes.values())
        if want > have:
            where = f"channel {name!r} has" if name else "the channels have"
            raise InputError(f"{want} bins are asked for and {where} only {have}; bins can be merged, not split")
    shares = list(map(int, asked.values()))
    return (shares if isinstance(n_bins, Mapping) else None), sum(shares)


def _make_sure(cells: Cells, found: Optimum, real: Cells | None) -> Optimum:
    """Take the best of the candidates, fitted from several starts; the search uses one start.

    With averaged templates the candidate counts that is best where it is worst: averaged, or as it is.
    """
    values = dict(sorted(found.candidates.items(), key=lambda item: -item[1])[:_JUDGED])
    if real is not None:
        for edges, value in values.items():
            values[edges] = min(value, float(real.between(np.array(edges)).lowest().objective))
    best, most = found, -np.inf
    for edges in sorted(values, key=lambda key: -values[key])[:_REPEATED]:
        if values[edges] <= most:
            break
        again = cells.between(np.array(edges)).lowest(far=True)
        if (value := min(values[edges], float(again.objective))) > most:
            most = value
            best = found._replace(edges=np.array(edges), objective=float(again.objective), theta=again.theta)
    return best


def _pulls(cells: TemplateCells, found: Optimum) -> dict[str, Any]:
    """How far the parameters move in the fit without signal, from where pyhf starts."""
    model = cells.fine.model
    out: dict[str, Any] = dict(
        zip(model.parameters.names, (model.parameters.scale * found.theta).tolist(), strict=True)
    )
    for channel, n, b in cells.merge(found.edges):
        local = profile_gammas(n, model.parts(channel, found.theta), b, channel)
        for g, gamma in zip(channel.gammas, local.gammas, strict=True):
            # pyhf has no gamma where a shapesys is zero.
            out[g.name] = (gamma[g.relative > 0] if g.poisson else gamma) - 1
    return out
