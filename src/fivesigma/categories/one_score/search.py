"""Choosing categories: the intervals of one score, or of several channels, with the largest significance together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array, IntArray
from fivesigma.categories.floors import Floors, check_number
from fivesigma.categories.one_score import exact
from fivesigma.categories.one_score.dual import Optimum, search
from fivesigma.categories.one_score.profiled_cells import MAX_EDGES_PROFILED, Cells, join_cells, make_cells, merge_cells
from fivesigma.categories.one_score.result import Categories, RankedEvents, fill, is_uncertain
from fivesigma.cut.best_cut import MIN_EFFECTIVE
from fivesigma.cut.binned import BinnedRanking
from fivesigma.cut.ranking import Cuts
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.likelihood.profile import OwnUncertainty, root_of, uncertainty_of
from fivesigma.likelihood.shifts import Systematics, YieldShifts, yield_shifts
from fivesigma.scored.scored_events import ScoredEvents, as_scored
from fivesigma.scored.scored_files import ScoredFiles
from fivesigma.significance import AMS2, SOverRootSB, Utility, resolve_utility
from fivesigma.yields import ProcessYields

RULES = ("model", "peak")
GOALS = ("discovery", "measurement")
MIN_EFFECTIVE_UNCERTAIN = 25.0  # with systematics: the noise of fewer events' shifts would be fitted
MAX_AUTO = 20  # categories beyond which "auto" does not look
AUTO_REPLICAS = 100
CANDIDATES = 64  # partitions met during the search that the events judge
DISAGREE, LITTLE = 0.15, 0.1  # relative and absolute difference between modelled and real yields that is said
_NOTHING = "(nothing)"  # a process without events, and a systematic that moves none


def categorise(  # noqa: PLR0917 - the limits may be given in order, as documented
    score: ArrayLike | ScoredEvents | ScoredFiles,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    n_categories: int | str = "auto",
    utility: Utility | str = AMS2(),
    min_background: float = 0.0,
    min_effective: float | None = None,
    max_relative_mc_error: float | None = None,
    *,
    rule: str = "model",
    goal: str = "discovery",
    systematics: Systematics | None = None,
    free: Iterable[str] = (),
    mc_statistics: bool | None = None,
    correlated: bool = True,
    process: ArrayLike | None = None,
    floor_processes: Sequence[str] | None = None,
    pos_label: Any = None,
    random_state: int = 0,
) -> Categories:
    """Find the intervals of a score with the largest combined significance.

    The optimum over at most 4,096 edges, which are weighted quantiles of the score, is exact for the yields that drive
    it. Quote what `Categories.evaluate` finds on other events. With systematics the partitions that the search has met
    are also judged on the events as they are, and a difference is said.

    Parameters
    ----------
    score : array-like of shape (n_events,), ScoredEvents or ScoredFiles
        Larger means more like signal. `ScoredEvents` bring labels, weights and processes with them: `y` and
        `sample_weight` are then left out. `ScoredFiles` are read part by part; beyond their million of highest scores,
        candidate edges are ends of bins of the score. Class probabilities are for `categorise_scores`.
    y : array-like of shape (n_events,)
        Labels of two classes.
    sample_weight : array-like of shape (n_events,)
        Physics weights: expected yields, scaled so that the sample stands for the whole experiment.
    n_categories : int or "auto", default="auto"
        ``"auto"`` adds categories, up to 20, until one more gains less significance than the bootstrap uncertainty of
        that gain; with systematics it takes the least number that is within one standard error of the best.
    utility : Utility or str, default=AMS2()
        Its F is summed over the categories; its b_reg is added to the background of each.
    min_background : float, default=0.0
        Background yield that every category must have.
    min_effective : float, optional
        Effective background count that every category must have: by default 10, or 25 with systematics.
    max_relative_mc_error : float, optional
        Largest relative error of every category's background from the number of simulated events. An error r is an
        effective count of 1 / r^2.
    rule : {"model", "peak"}, default="model"
        ``"model"`` takes the edges that are best for modelled yields, smooth curves along the ranked events; fewer than
        30 effective events of a class, a score with few distinct values, yields that contradict the model by four
        standard errors, and yields with systematics are averaged along the score instead, which leaves three tenths of
        their noise, or more for a measurement with many events. The floors hold for the yields as they are. ``"peak"``
        takes the edges that are best on these events, fluctuations included: its significance is higher on these events
        and lower on others.
    goal : {"discovery", "measurement"}, default="discovery"
        The largest significance, or the smallest uncertainty of the signal strength mu at mu = 1, for which the
        systematics of the signal count as well. Without systematics the latter is the utility s / sqrt(s + b).
    systematics : mapping of str to (Varied, Varied or None) or Normalisation, optional
        For each name the events one standard deviation up and down, or an uncertain yield of some processes. The edges
        are then those with the largest profiled significance on at most 512 candidates. Each systematic is one pull
        for all categories and processes.
    free : iterable of str, default=()
        Names of systematics that have no constraint: only the categories measure them.
    mc_statistics : bool, optional
        Whether what is quoted has the statistics of the simulation, as pyhf's ``staterror``. They do not drive the
        edges. By default where the background is uncertain, because noise between categories would else pass for a
        constraint.
    correlated : bool, default=True
        Whether the uncertainty of `GaussianBackground` or `RelativeBackground` moves all categories together. It is
        then one more systematic: sigma events, or a fraction of the background, in every category. If False, every
        category has an uncertainty of its own and their F add up.
    process : array-like of shape (n_events,), optional
        Name of the process of each event, for the yields by process.
    floor_processes : sequence of str, optional
        Backgrounds that count for the limits, by default all: if another signal is among the background, its many
        light events would satisfy a limit on effective counts without any real background.
    pos_label : label, optional
        The signal; see `fivesigma.yields.split_labels`.
    random_state : int, default=0
        Seed of the bootstrap of ``"auto"``.

    Returns
    -------
    Categories

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma.categories import categorise
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([1, 0], 20000)
    >>> score = rng.normal(2.0 * y)
    >>> weight = np.where(y == 1, 0.005, 0.5)
    >>> tune, test = np.split(rng.permutation(40000), 2)
    >>> three = categorise(score[tune], y[tune], 2 * weight[tune], 3, max_relative_mc_error=0.15)
    >>> len(three), float(three.edges[-1])
    (3, inf)
    >>> quoted = three.evaluate(score[test], y[test], 2 * weight[test])
    >>> quoted.held_out, abs(quoted.significance / three.significance - 1) < 0.1
    (True, True)
    """
    utility, free = resolve_utility(utility), tuple(free)
    for name, value, known in (("rule", rule, RULES), ("goal", goal, GOALS)):
        if value not in known:
            raise InputError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
    if systematics is None and free:
        raise InputError(f"free names {free[0]!r}, and there are no systematics")
    uncertain = systematics is not None or is_uncertain(utility, correlated=correlated)
    if uncertain or mc_statistics or goal == "measurement":
        OwnUncertainty.of(utility)
    if min_effective is None:
        min_effective = MIN_EFFECTIVE_UNCERTAIN if uncertain else MIN_EFFECTIVE
    floors = Floors.checked(min_background, min_effective, max_relative_mc_error, floor_processes)
    most = MAX_AUTO if n_categories == "auto" else check_number(n_categories, " or 'auto'")
    ranking: Cuts
    events: RankedEvents | ScoredFiles
    if isinstance(score, ScoredFiles):
        beside = {"y": y, "sample_weight": sample_weight, "process": process, "pos_label": pos_label}
        whole = {"systematics": systematics, "floor_processes": floor_processes}
        for name in (name for name, given in (beside | whole).items() if given is not None):
            if name in whole:
                raise InputError(f"{name} needs all events in memory; read the files with ScoredEvents.read")
            raise InputError(f"{name} is given with ScoredFiles, which read it from their files; leave it out")
        ranking, events = BinnedRanking(score).cuts(), score
    else:
        scored = as_scored(score, y, sample_weight, process, pos_label)
        floors.check_processes(scored.arrays()[1], scored.process)
        events = RankedEvents.of(scored)
        ranking = events.ranking
    cuts = exact.candidate_cuts(ranking, MAX_EDGES_PROFILED if uncertain else exact.MAX_EDGES)
    grid = exact.grid_of(ranking, cuts)
    if isinstance(events, RankedEvents) and (counted := floors.counted(*events, cuts)) is not None:
        grid = replace(grid, floor=counted[0], b2=counted[1])
    raw = grid
    if rule == "model":
        grid = exact.average_yields(grid, goal) if uncertain else exact.model_yields(grid, ranking.last[cuts])
    sums: Utility = SOverRootSB(utility.b_reg) if goal == "measurement" else utility
    plain = AMS2(utility.b_reg) if uncertain else sums
    best = exact.best_totals(grid, plain, floors, min(most, cuts.size))
    feasible = int(np.count_nonzero(best.max(axis=1) > -np.inf))
    asked = 1 if n_categories == "auto" else most
    if feasible < asked:
        raise InputError(
            f"{asked} categories do not fit: each needs s >= 0, {floors}, which at most {feasible} can have (all "
            f"events have s = {ranking.s[-1]:g}, b = {ranking.b[-1]:g} and an effective background count of "
            f"{ranking.effective_background:.3g}); ask for fewer categories or lower the floors"
        )
    filled = partial(
        fill,
        events,
        utility=utility,
        rule=rule,
        floors=floors,
        goal=goal,
        correlated=correlated,
        mc_statistics=uncertain if mc_statistics is None else mc_statistics,
    )
    if uncertain:
        shifts = None
        if systematics is not None:
            shifts = yield_shifts(exact.edges_at(ranking, cuts), scored, systematics=systematics, free=free)
            shifts.check()
        cells = make_cells(grid, shifts, floors, utility, goal)
        real = None if rule == "peak" else make_cells(raw, shifts, floors, utility, goal)
        channel = _Channel(ranking, cuts, shifts)
        if n_categories == "auto":
            trial = partial(channel.categories, partial(filled, mc_statistics=False), cells, real, goal)
            most = _within_error_of_best(trial, feasible, random_state)
        return channel.categories(filled, cells, real, goal, most)
    if n_categories == "auto":
        trials = [exact.best_edges(grid, sums, floors, best, k) for k in range(1, feasible + 1)]
        chosen = worthwhile(ranking, cuts, trials, sums, random_state)
    else:
        chosen = exact.best_edges(grid, sums, floors, best, most)
    F = float(best[chosen.size - 1].max())
    bound = uncertainty_of(F) if goal == "measurement" else float(utility.from_objective(F))
    return filled(exact.edges_at(ranking, cuts[chosen - 1]), bound=bound, gap=0.0)


class _Channel(NamedTuple):
    """Ranked events, candidate cuts, and the shifts of the cells between them."""

    ranking: Cuts
    cuts: IntArray
    shifts: YieldShifts | None

    def fill(self, filled: Callable[..., Categories], places: IntArray, **options: Any) -> Categories:
        """Categories with edges at some of the cuts."""
        edges = exact.edges_at(self.ranking, self.cuts[places - 1])
        if self.shifts is not None:
            options["shifts"] = merge_cells(self.shifts, self.cuts.size - places[::-1], edges)
        return filled(edges, **options)

    def categories(
        self, filled: Callable[..., Categories], cells: Cells, real: Cells | None, goal: str, n_categories: int
    ) -> Categories:
        """Choose the edges with the largest profiled F, by the modelled yields and by the events as they are."""
        optimum = search(cells, n_categories)
        chosen, said = (optimum, ()) if real is None else judge(optimum, cells, real)
        figure = uncertainty_of if goal == "measurement" else root_of
        bound = figure(optimum.bound)
        gap = abs(bound - figure(chosen.objective))
        return self.fill(filled, chosen.edges, bound=bound, gap=gap, said=said)


def judge(optimum: Optimum, cells: Cells, real: Cells) -> tuple[Optimum, tuple[str, ...]]:
    """Take the candidate that is best where it is worst: by the modelled yields, or by the events as they are.

    The model may hide a boundary that the events have; the events alone would reward noise.
    """
    ordered = sorted(optimum.candidates, key=lambda edges: -optimum.candidates[edges])[:CANDIDATES]
    modelled_F = np.array([optimum.candidates[edges] for edges in ordered])
    real_F = np.array([float(real.between(np.array(edges)).lowest(optimum.theta).objective) for edges in ordered])
    best = int(np.minimum(modelled_F, real_F).argmax())
    edges = np.array(ordered[best])
    if best:
        again = cells.between(edges).lowest()
        optimum = optimum._replace(edges=edges, objective=float(again.objective), theta=again.theta)
    promised, there = (float(np.sqrt(2 * max(F[best], 0.0))) for F in (modelled_F, real_F))
    if promised - there <= max(DISAGREE * promised, LITTLE):
        return optimum, ()
    note = (
        f"the smooth yields that chose these {edges.size} categories promise {promised:.3g} and the events have "
        f"{there:.3g} (root of 2 F, without the statistics of the simulation): try another number of categories"
    )
    return optimum, (note,)


def worthwhile(ranking: Cuts, cuts: IntArray, trials: list[IntArray], utility: Utility, random_state: int) -> IntArray:
    """Edges of the first trial after which one more category gains less than the bootstrap uncertainty of its gain."""
    used = np.unique(np.concatenate(trials))
    chosen = cuts[used - 1]
    s, b = (exact.from_zero(v) for v in ranking.replicas(chosen, AUTO_REPLICAS, random_state))
    exact_s, exact_b = (exact.from_zero(v[chosen][None]) for v in (ranking.s, ranking.b))
    before: tuple[float, Array] | None = None
    for k, trial in enumerate(trials):
        at = np.append(0, np.searchsorted(used, trial) + 1)
        z = float(exact.combined_significance(utility, exact_s, exact_b, at)[0])
        scatter = exact.combined_significance(utility, s, b, at)
        if before is not None:
            gains = scatter - before[1]
            gains = gains[np.isfinite(gains)]
            if gains.size < AUTO_REPLICAS / 2 or z - before[0] < gains.std():
                return trials[k - 1]
        before = z, scatter
    return trials[-1]


def _within_error_of_best(found: Callable[[int], Categories], feasible: int, random_state: int) -> int:
    """Least number of categories whose significance is within one standard error of the highest.

    With systematics the second category may gain little where the fifth gains much, so that all numbers are looked at.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSampleWarning)  # said of the chosen categories alone
        trials = [found(k) for k in range(1, feasible + 1)]
    power = -1 if trials[0].goal == "measurement" else 1  # of what is quoted: larger is then better
    z = np.array([trial.figure for trial in trials]) ** power
    scatter = np.array([trial.replicas(AUTO_REPLICAS, random_state) for trial in trials]) ** power
    best = int(z.argmax())
    losses = scatter[best] - scatter
    error = np.array([np.std(loss[np.isfinite(loss)]) if np.isfinite(loss).any() else 0.0 for loss in losses])
    return 1 + int(np.argmax(z[best] - z <= error))


def categorise_channels(
    channels: Mapping[str, tuple[ScoredEvents, Systematics]],
    n_categories: int,
    *,
    shares: Sequence[int] | None = None,
    goal: str = "discovery",
    min_effective: float | None = None,
    min_background: float = 0.0,
) -> dict[str, Categories]:
    """Find the categories of several channels with the best profiled value of all of them together.

    A systematic of one name is one pull in all channels. Every channel has at least one category, and as many as it is
    worth unless `shares` says how many. They are quoted channel by channel, with the statistics of the simulation.
    """
    floors = Floors.checked(min_background, MIN_EFFECTIVE_UNCERTAIN if min_effective is None else min_effective)
    events, own = {}, {}
    for name, (scored, systematics) in channels.items():
        events[name] = RankedEvents.of(scored)
        ranking = events[name].ranking
        cuts = exact.candidate_cuts(ranking, MAX_EDGES_PROFILED // len(channels))
        shifts = yield_shifts(exact.edges_at(ranking, cuts), scored, systematics=systematics)
        shifts.check()
        own[name] = _Channel(ranking, cuts, shifts)
    raw = {name: exact.grid_of(ranking, cuts) for name, (ranking, cuts, _) in own.items()}
    padded = _align({name: shifts for name, (_, _, shifts) in own.items() if shifts is not None})
    by_events, by_model = (
        [make_cells(change(raw[name]), padded[name], floors, AMS2(), goal) for name in channels]
        for change in (replace, exact.average_yields)
    )
    cells, real = join_cells(by_model, shares=shares), join_cells(by_events, shares=shares)
    found = search(cells, n_categories)
    numbers = [part.size for part in cells.split(found.edges)]
    if min(numbers) == 0:  # a channel that is worth nothing has one category all the same
        numbers = [max(number, 1) for number in numbers]
        numbers[int(np.argmax(numbers))] -= sum(numbers) - n_categories
        cells, real = join_cells(by_model, shares=numbers), join_cells(by_events, shares=numbers)
        found = search(cells, n_categories)
    chosen, said = judge(found, cells, real)
    options: dict[str, Any] = {"utility": AMS2(), "rule": "model", "floors": floors, "goal": goal, "said": said}
    options["mc_statistics"] = True
    return {
        name: own[name].fill(partial(fill, events[name], **options), places)
        for name, places in zip(channels, cells.split(chosen.edges), strict=True)
    }


def _align(channels: Mapping[str, YieldShifts]) -> dict[str, YieldShifts]:
    """The same systematics in the same order in all channels, and at least one; some move nothing."""
    names = list(dict.fromkeys(name for shifts in channels.values() for name in shifts.up)) or [_NOTHING]
    free = {name for shifts in channels.values() for name in shifts.free}
    scales = {name for shifts in channels.values() for name, processes in shifts.free.items() if processes}
    out = {}
    for channel, shifts in channels.items():
        zeros = np.zeros(shifts.edges.size - 1)
        nominal = {**shifts.nominal, _NOTHING: ProcessYields(False, zeros, zeros, zeros.astype(int))}
        unmoved = {process: rows.sum_of_weights for process, rows in nominal.items()}
        up, down = ({name: {**unmoved, **side.get(name, {})} for name in names} for side in (shifts.up, shifts.down))
        by = {name: shifts.free.get(name) or ((_NOTHING,) if name in scales else ()) for name in names if name in free}
        out[channel] = YieldShifts(shifts.edges, nominal, up, down, by)
    return out
