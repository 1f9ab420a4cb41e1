"""Categories filled with events: what each interval of a score keeps, and how sure that is."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._tools.drawing import Label, axes_or_current, draw_data, draw_label, legend_above, panel_below
from fivesigma._tools.extras import need
from fivesigma._tools.summary import Summary, digits
from fivesigma._types import AnyArray, Array, IntArray
from fivesigma.categories.floors import Floors, effective_counts
from fivesigma.categories.one_score.exact import events_above, from_zero
from fivesigma.categories.workspace import FilledCategories
from fivesigma.cut.best_cut import MIN_EFFECTIVE
from fivesigma.cut.bootstrap import interval_ends
from fivesigma.cut.ranking import Ranking, rank_events
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.likelihood.profile import Counts, Derivatives
from fivesigma.likelihood.shifts import Systematics, YieldShifts, counts_of, derivatives_of, scaled, yield_shifts
from fivesigma.scored.scored_events import ScoredEvents, as_scored
from fivesigma.scored.scored_files import ScoredFiles
from fivesigma.significance import AMS2, GaussianBackground, RelativeBackground, Utility
from fivesigma.yields import ProcessYields, class_sums, number_processes, process_yields, valid_yields

_ALIKE = 0.95  # of a significance, above which another is not worth a sentence
_MATTERS = 0.1  # share of F from which the signal of a category matters
DOMINATED = 3.0  # effective signal events below which a few heavy ones make the signal of a category


class CategoriesInterval(NamedTuple):
    """Interval (low, high) of the significance.

    The note says in which way it cannot be believed; it is empty if nothing is known against it.
    """

    significance: tuple[float, float]
    note: str = ""


class RankedEvents(NamedTuple):
    """The events of a record, which replicas are drawn from; their processes are in the order of the input."""

    ranking: Ranking
    process: AnyArray | None

    @classmethod
    def of(cls, scored: ScoredEvents) -> RankedEvents:
        """Rank the events."""
        return cls(rank_events(*scored.arrays()), scored.process)

    def by_process(self, edges: Array) -> Mapping[str, ProcessYields]:
        """Sum up what each category keeps."""
        ranking, n = self.ranking, edges.size - 1
        bounds = events_above(ranking, edges)
        kept = slice(0, bounds[-1])
        processes = number_processes(ranking.signal, None if self.process is None else self.process[ranking.order])
        category = np.repeat(np.arange(n)[::-1], np.diff(bounds))
        return process_yields(category, n, ranking.weight[kept], processes._replace(codes=processes.codes[kept]))


@dataclass(frozen=True, repr=False, eq=False)
class Categories(FilledCategories):
    """Intervals of a score and what they keep of a sample.

    Attributes
    ----------
    edges : array of shape (n_categories + 1,)
        Ascending; category i holds ``edges[i] <= score < edges[i + 1]``. The last is infinity. Events below the first,
        which may be minus infinity, are discarded.
    by_process : mapping of str to ProcessYields
        ``"signal"`` and ``"background"`` if no processes were given.
    utility : Utility
    rule : {"model", "peak"}
        How the edges were chosen.
    floors : Floors
        What every category must have.
    goal : {"discovery", "measurement"}
        What the edges were chosen for.
    held_out : bool
        False if the edges were chosen on these very events, so that the significance is too high.
    shifts : YieldShifts or None
        Yields under the systematics, in these categories.
    bound : float or None
        For the yields that drove the search (with ``rule="model"`` the modelled ones): significance that no such
        categories with edges on the grid and within the floors can exceed, or, with ``goal="measurement"``, the
        uncertainty that none can fall below. None if the edges were chosen on other events.
    gap : float or None
        Distance of these edges from the bound for the same yields; zero if they are the optimum.
    mc_statistics : bool
        Whether the statistics of the simulation are in the significance, as pyhf's ``staterror``.
    correlated : bool
        Whether the uncertainty of the utility's background moves all categories together.
    notes : tuple of str
        A sentence for each category whose yields should not be believed, and for each odd systematic.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma import categorise
    >>> y = np.repeat([1, 0], 500)
    >>> score = np.random.default_rng(0).normal(size=1000) + 2 * y
    >>> found = categorise(score, y, np.where(y == 1, 0.1, 1.0), 2)
    >>> found.assign([-10.0, 10.0]).tolist(), len(found.edges)
    ([-1, 1], 3)
    """

    edges: Array
    by_process: Mapping[str, ProcessYields]
    utility: Utility
    rule: str
    floors: Floors
    goal: str = "discovery"
    held_out: bool = False
    shifts: YieldShifts | None = None
    bound: float | None = None
    gap: float | None = None
    mc_statistics: bool = False
    correlated: bool = True
    notes: tuple[str, ...] = ()
    _events: RankedEvents | None = field(init=False, default=None)

    @cached_property
    def s(self) -> Array:
        """Signal of each category."""
        return class_sums(self.by_process, signal=True)[0]

    @property
    def effective_s(self) -> Array:
        """Effective signal count (sum of w)^2 / sum of w^2 of each category."""
        return effective_counts(*class_sums(self.by_process, signal=True))

    @property
    def effective_b(self) -> Array:
        """Effective background count of each category."""
        return effective_counts(*class_sums(self.by_process, signal=False))

    @cached_property
    def significance(self) -> float:
        """Significance of all categories together.

        h(sum of F), which is the root of the sum of squares for h(F) = sqrt(2 F). With systematics it is profiled over
        them, as `fivesigma.profiled_significance` is.
        """
        if self._profiled:
            return self._counts().significance
        return float(self.utility.from_objective(valid_objective(self.utility, self.s, self.b).sum()))

    @cached_property
    def uncertainty(self) -> float:
        """Expected uncertainty of the signal strength mu at mu = 1, from the Hessian of the Asimov likelihood."""
        return self._derivatives().uncertainty

    @property
    def figure(self) -> float:
        """What the edges were chosen for: the significance, or the uncertainty of mu."""
        return self.uncertainty if self.goal == "measurement" else self.significance

    def _summary(self) -> Summary:
        """Yields and significance of each category, as `repr` and notebooks show them."""
        where = "on held-out events" if self.held_out else "on the events that chose the edges"
        columns = (self.edges[:-1], self.edges[1:], self.s, self.b, self.by_category, self.effective_b)
        notes = []
        if self.shifts is not None or self.mc_statistics:
            names = [*([] if self.shifts is None else self.shifts.up), *["simulation"][: self.mc_statistics]]
            notes.append(f"profiled over {', '.join(names)}; {self.known_background:.4f} if the background were known")
        measured = self.goal == "measurement"
        if self.bound is not None and self.gap is not None:
            which = "fall below" if measured else "exceed"
            beside = "below" if measured else "above"
            notes.append(f"no such categories {which} {self.bound:.4f} in the search, {self.gap:.4f} {beside} these")
        figure = f"uncertainty of mu {self.uncertainty:.4f}" if measured else f"significance {self.significance:.4f}"
        return Summary(
            f"{len(self)} categories, {figure} {where}, {self.utility!r}",
            ("", "from", "to", "s", "b", "Z", "eff. b"),
            [
                (str(k), f"{low:.6g}", f"{high:.6g}", digits(s), digits(b), f"{z:.4f}", f"{n:,.1f}")
                for k, (low, high, s, b, z, n) in enumerate(zip(*columns, strict=True))
            ],
            [*notes, *self.notes],
        )

    @property
    def known_background(self) -> float:
        """Significance if there were neither systematics nor statistics of the simulation."""
        return float(np.sqrt(2 * valid_objective(AMS2(self.utility.b_reg), self.s, self.b).sum()))

    @property
    def error(self) -> float:
        """Standard error of the significance from the statistics of the simulation, if the background is known.

        How far it moves if the s and the b of each category move up by their own error, all in quadrature.
        """
        z = float(self.utility.from_objective(valid_objective(self.utility, self.s, self.b).sum()))
        moved = []
        for signal in (True, False):
            step = np.diag(np.sqrt(class_sums(self.by_process, signal=signal)[1]))
            s, b = (np.tile(v, (len(self), 1)) for v in (self.s, self.b))
            s, b = (s + step, b) if signal else (s, b + step)
            moved.append(self.utility.from_objective(valid_objective(self.utility, s, b).sum(axis=1)) - z)
        return float(np.sqrt(np.square(moved).sum()))

    @property
    def pulls(self) -> dict[str, float]:
        """How far each systematic moves, in standard deviations, where it fits s + b best without signal.

        A free normalisation has the scale of its yield less one.
        """
        if self.shifts is None:
            return {}
        theta = self._counts().lowest().theta
        return dict(zip(self.shifts.up, theta[: len(self.shifts.up)].tolist(), strict=True))

    @property
    def _variance(self) -> Array | None:
        return class_sums(self.by_process, signal=False)[1] if self.mc_statistics else None

    def _counts(self, *, noise: bool = False) -> Counts:
        """What the likelihood needs; with the noise of the shifts as if it were statistics of the simulation."""
        variance = self._variance
        if noise and variance is not None and self.shifts is not None and self.shifts.noise is not None:
            variance = variance + self.shifts.noise
        return counts_of(self.utility, self.s, self.b, self.shifts, variance)

    def _derivatives(self) -> Derivatives:
        return derivatives_of(self.utility, self.s, self.b, self.shifts, self._variance)

    @property
    def by_category(self) -> Array:
        """Significance of each category alone, zero where it is not valid."""
        return np.atleast_1d(self.utility.from_objective(valid_objective(self.utility, self.s, self.b)))

    def assign(self, score: ArrayLike) -> IntArray:
        """Find the category of each event.

        Parameters
        ----------
        score : array-like of shape (n_events,)

        Returns
        -------
        int array of shape (n_events,)
            From 0 to ``len(self) - 1``, or -1 for a discarded event.
        """
        values = np.asarray(score, dtype=np.float64)
        if values.ndim == 2:
            raise InputError(f"score has shape {values.shape}, and the edges were chosen on one score per event")
        missing = np.isnan(values)
        if missing.any():
            raise InputError(
                f"score is NaN in {int(missing.sum())} of {values.size} rows; such events have no category"
            )
        found: IntArray = np.searchsorted(self.edges, values, side="right") - 1
        return np.minimum(found, len(self) - 1)  # an infinite score belongs to the last category

    def evaluate(
        self,
        score: ArrayLike | ScoredEvents | ScoredFiles,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        yields: tuple[float, float] | None = None,
        process: ArrayLike | None = None,
        pos_label: Any = None,
        systematics: Systematics | None = None,
        free: Iterable[str] | None = None,
        mc_statistics: bool | None = None,
    ) -> Categories:
        """Fill the same categories with other events; their significance is what should be quoted.

        Parameters
        ----------
        score, y, sample_weight : array-like of shape (n_events,)
            As in `categorise`, of events that neither trained the score nor chose the edges; `ScoredEvents` as `score`
            stand for all three.
        yields : (float, float), optional
            Full yields of signal and background to which the weights are scaled, if these events stand for the whole.
            By default the weights are taken as they are.
        process, pos_label
            As in `categorise`.
        systematics : mapping of str to (Varied, Varied or None), optional
            Variations of these events, needed if the edges were chosen with systematics; an empty mapping quotes
            without them. With `yields` their weights are scaled by the same factors as the nominal ones.
        free : iterable of str, optional
            As in `categorise`; by default as it was there.
        mc_statistics : bool, optional
            As in `categorise`; by default as it was there.

        Returns
        -------
        Categories
            With the same edges. A category without background, or with negative signal, is not valid and adds nothing.
        """
        if systematics is None and self.shifts is not None:
            raise InputError(
                f"the edges were chosen with the systematics {', '.join(self.shifts.up)}: give systematics= of these "
                "events as well, or {} to leave them out"
            )
        kept = ("utility", "rule", "floors", "goal", "correlated")
        options = {name: getattr(self, name) for name in kept} | {"held_out": True}
        options["mc_statistics"] = self.mc_statistics if mc_statistics is None else mc_statistics
        if isinstance(score, ScoredFiles):
            if systematics or yields is not None:
                raise InputError("ScoredFiles have their own yields and no systematics; leave both out here")
            return fill(score, self.edges, **options)
        given = scored = as_scored(score, y, sample_weight, process, pos_label)
        if yields is not None:
            _, signal, before = given.arrays()
            scored = given.scaled_to(*yields)
            systematics = scaled(systematics, signal, before, scored.arrays()[2]) if systematics else systematics
        shifts = None
        if systematics is not None:
            if free is None:
                free = [] if self.shifts is None else [name for name in self.shifts.free if name in systematics]
            shifts = yield_shifts(self.edges, scored, systematics=systematics, free=free)
            shifts.check()
        return fill(RankedEvents.of(scored), self.edges, shifts=shifts, **options)

    def interval(self, level: float = 0.68, n_boot: int = 200, random_state: int = 0) -> CategoriesInterval:
        """Bootstrap interval of the significance in these categories.

        Each replica gives every event a Poisson number of copies. The interval covers the statistics of the simulated
        events only. On the events that chose the edges (`held_out` is False) it is too high and too narrow: quote that
        of `evaluate`. Shifts of varied events are the same in all replicas. Where their noise is known, the lower end
        is that of a fit for which it is statistics of the simulation, else the `note` of the result says that it is
        not. With ``goal="measurement"`` the interval is that of the uncertainty of mu.

        Parameters
        ----------
        level : float, default=0.68
            Central probability.
        n_boot : int, default=200
            Replicas.
        random_state : int, default=0
            Seed; the same seed gives the same interval.

        Returns
        -------
        CategoriesInterval
            Replicas in which a category keeps no background are excluded.
        """
        quantiles = interval_ends(level, n_boot)
        yields = self._replica_yields(n_boot, random_state)
        z = self._replica_significance(*yields)
        if not np.isfinite(z).any():
            raise InputError(
                f"no replica of these events has all {len(self)} categories; there are too few events for an interval"
            )
        low, high = np.nanquantile(z, quantiles).tolist()
        if self._knows_noise:
            low = min(low, float(np.nanquantile(self._replica_significance(*yields, noise=True), quantiles[0])))
        note, wrong = "", "low" if self.goal == "measurement" else "high"
        if not self.held_out:
            note = f"these events chose the edges: the interval is too {wrong} and too narrow; quote evaluate on others"
        elif self.shifts is not None and not self._knows_noise and self.shifts.vary_in_shape():
            note = (
                "the shifts of the variations are taken as exact, and their noise passes for a shape that a fit could "
                f"measure: the interval is too {wrong} and too narrow, unless varied events are many"
            )
        return CategoriesInterval((low, high), note)

    def _noise_of_variations(self) -> list[str]:
        """A sentence where the significance would be lower if the noise of the shifts were known to the fit."""
        z = self._counts(noise=True).significance if self._knows_noise else np.inf
        if z > _ALIKE * self.significance:
            return []
        said = f"the varied events are few: with their noise as statistics of the simulation it would be {z:.4f}"
        return [f"significance {self.significance:.4f} takes the shifts as exact, and {said}"]

    @property
    def _knows_noise(self) -> bool:
        """Whether the noise of the shifts can stand beside the statistics of the simulation."""
        known = self.shifts is not None and self.shifts.noise is not None
        return known and self.mc_statistics and self.goal == "discovery"

    def replicas(self, n_boot: int = 200, random_state: int = 0) -> Array:
        """Significance of these edges in bootstrap replicas of the events; NaN where a category is not valid.

        Parameters
        ----------
        n_boot : int, default=200
            Replicas.
        random_state : int, default=0
            Seed; the same seed draws the same replicas of the same events, so that edges can be compared in pairs.
        """
        return self._replica_significance(*self._replica_yields(n_boot, random_state))

    def _replica_yields(self, n_boot: int, random_state: int) -> tuple[Array, Array]:
        """Signal and background of the categories in replicas, one per row."""
        if self._events is None:
            raise InputError("an interval needs all events in memory; read the files with ScoredEvents.read")
        ranking = self._events.ranking
        bounds = events_above(ranking, self.edges)
        cuts = np.unique(np.searchsorted(ranking.last, bounds[bounds > 0] - 1))
        at = np.searchsorted(np.append(0, ranking.last[cuts] + 1), bounds)
        running = (from_zero(v)[:, at] for v in ranking.replicas(cuts, n_boot, random_state))
        s, b = (np.diff(v, axis=1)[:, ::-1] for v in running)
        return s, b

    def _replica_significance(self, s: Array, b: Array, *, noise: bool = False) -> Array:
        """What is quoted, of replicas whose yields are given: the significance, or the uncertainty of mu."""
        rows, offset = valid_yields(s, b).all(axis=1), self.utility.b_reg
        s, b = s[rows], b[rows]
        z = np.full(rows.size, np.nan)
        profiled = self.goal == "measurement" or self._profiled
        if not rows.any() or (profiled and not ((self.s >= 0) & (self.b > 0)).all()):
            return z
        if self.goal == "measurement":
            share = (s + b + offset) / (self.s + self.b + offset)
            z[rows] = 1 / np.sqrt(2 * np.maximum(self._derivatives().replicas(s, share).profile().objective, 0.0))
        elif profiled:
            counts = self._counts(noise=noise)
            fitted = counts.replicas(s, b + offset).profile(counts.lowest().theta)
            z[rows] = np.sqrt(2 * np.maximum(fitted.objective, 0.0))
        else:
            z[rows] = self.utility.from_objective(self.utility.objective(s, b).sum(axis=1))
        return z

    @property
    def _profiled(self) -> bool:
        return self.shifts is not None or self.mc_statistics or is_uncertain(self.utility, correlated=self.correlated)

    def to_latex(self) -> str:
        """Yields and significance of each category as a table of LaTeX, with the rules of booktabs."""
        return self._summary().latex()

    def plot(
        self,
        ax: Any = None,
        *,
        data: ArrayLike | None = None,
        ratio: Any = None,
        significance: bool = False,
        **label: Unpack[Label],
    ) -> Any:
        """Draw the expected events of every category, backgrounds stacked and signal as a line.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; the current axes if not given.
        data : array-like of shape (n_categories,), optional
            Observed events of each category, drawn as points; their ratio to s + b is in a panel below.
        ratio : matplotlib axes, optional
            For the ratio; by default the axes are divided into two panels.
        significance : bool, default=False
            Whether to draw the significance of each category alone in a panel below; not with `data`.
        **label
            ``experiment``, ``luminosity`` in 1/fb and ``energy`` in TeV, written above the axes; see `fivesigma.plot`.

        Returns
        -------
        matplotlib axes
        """
        ax = axes_or_current(ax)
        position, floor = np.arange(len(self)), np.zeros(len(self))
        for name, rows in self.by_process.items():
            if not rows.signal:
                ax.bar(position, rows.sum_of_weights, bottom=floor, width=1.0, label=name)
                floor = floor + rows.sum_of_weights
        edges = np.arange(len(self) + 1, dtype=np.float64) - 0.5
        halo = need("matplotlib.patheffects").withStroke(linewidth=4, foreground="white")  # on dark colours too
        ax.stairs(self.s, edges, color="black", linewidth=1.5, label="signal", path_effects=[halo])
        ax.set_yscale("log")
        ax.set_xticks(position, [f"≥ {edge:.3g}" for edge in self.edges[:-1]], rotation=45)
        ax.set_xlabel("score")
        ax.set_ylabel("expected events" if data is None else "events")
        counts = np.zeros(len(self)) if data is None else np.asarray(data, dtype=np.float64)
        if counts.shape != (len(self),):
            raise InputError(f"data must be one number per category, {len(self)} in all, got the shape {counts.shape}")
        drawn = np.concatenate([self.s, floor, counts])
        ax.set_ylim(bottom=drawn[drawn > 0].min(initial=1.0) / 3)
        if data is not None:
            variance = sum(rows.sum_of_squares for rows in self.by_process.values())
            draw_data(ax, edges, counts, self.s + self.b, error=np.sqrt(variance), ratio=ratio)
        elif significance:
            below = panel_below(ax)
            below.stairs(self.by_category, edges, fill=True, color="0.6")
            below.set_ylabel("Z")
            below.set_xlabel(ax.get_xlabel())
            ax.set_xlabel("")
            ax.tick_params(labelbottom=False)
        draw_label(ax, **label, data=data is not None)
        legend_above(ax, 1.5 * float(drawn.max()), title=f"significance {self.significance:.3f}")
        return ax


def valid_objective(utility: Utility, s: Array, b: Array) -> Array:
    """F of each category, zero where it is not valid."""
    valid = valid_yields(s, b)
    F = np.zeros(s.shape)
    F[valid] = utility.objective(s[valid], b[valid])
    return F


def is_uncertain(utility: Utility, *, correlated: bool) -> bool:
    """Whether a utility has an uncertainty that moves all categories together, so that they must be profiled."""
    return correlated and isinstance(utility, GaussianBackground | RelativeBackground)


def fill(source: RankedEvents | ScoredFiles, edges: Array, *, said: tuple[str, ...] = (), **options: Any) -> Categories:
    """Sum up what each category keeps; `said` are further notes, which are also warnings."""
    by_process = source.by_process(edges)
    notes = _notes(edges, *(class_sums(by_process, signal=signal) for signal in (True, False)))
    for note in (*notes, *said):
        warnings.warn(note, SmallSampleWarning, stacklevel=3)
    shifts = options.get("shifts")
    odd = () if shifts is None else shifts.notes()
    found = Categories(edges, by_process, notes=(*notes, *said, *odd), **options)
    # No parameters of a frozen dataclass.
    object.__setattr__(found, "_events", source if isinstance(source, RankedEvents) else None)
    object.__setattr__(found, "notes", (*found.notes, *found._noise_of_variations()))
    return found


def _notes(edges: Array, signal: tuple[Array, Array], background: tuple[Array, Array]) -> tuple[str, ...]:
    out = []
    (s, _), (b, _) = signal, background
    effective_s, effective_b = effective_counts(*signal), effective_counts(*background)
    F = valid_objective(AMS2(), s, b)
    for i in range(s.size):
        where = f"category {i}, [{edges[i]:.6g}, {edges[i + 1]:.6g}),"
        if not valid_yields(s[i], b[i]):
            out.append(f"{where} keeps s = {s[i]:.4g} and b = {b[i]:.4g}: it is not valid and adds nothing")
        elif effective_b[i] < MIN_EFFECTIVE * (1 - 1e-9):
            error = f", an error of {100 * effective_b[i] ** -0.5:.0f} % on b" if effective_b[i] > 0 else ""
            out.append(
                f"{where} has {effective_b[i]:.3g} effective background events{error}: too few to believe its "
                "significance"
            )
        elif effective_s[i] < DOMINATED and F[i] > _MATTERS * F.sum():
            out.append(f"{where} has {effective_s[i]:.3g} effective signal events: a few heavy ones make its signal")
    return tuple(out)
