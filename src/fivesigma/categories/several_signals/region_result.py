"""Categories of several signals, filled with events: what each keeps, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._tools.drawing import Label
from fivesigma._types import Array, IntArray
from fivesigma.categories.ratios.class_sample import ClassSample, added, check_sample, check_scores
from fivesigma.categories.several_signals.goal import Goal, Settings
from fivesigma.categories.several_signals.region_rules import Rule
from fivesigma.categories.workspace import histogram_of, to_pyhf
from fivesigma.cut.best_cut import MIN_EFFECTIVE
from fivesigma.errors import InputError, did_you_mean
from fivesigma.yields import Processes, ProcessYields, process_yields


class Bound(NamedTuple):
    """What could be had at best.

    Attributes
    ----------
    value : float
        Of the goal, with this number of categories.
    z : mapping of str to float
        The Z of each signal that it is made of.
    any_number : float
        Of the goal with any number of categories: the f-divergences of the calibrated densities, in fine cells. It is
        right if they are; categories that follow the noise of few events can have more on these events.
    meaning : str
        What `value` means.
    """

    value: float
    z: Mapping[str, float]
    any_number: float
    meaning: str


class Judged(NamedTuple):
    """Goal of both ways on events that they were not fitted on.

    Attributes
    ----------
    search, simple : float or None
        None where a half had too few events for that number of categories.
    how : {"cross-fitted", "held-out"}
        Mean of two halves, each judged by the other, or one half judged by the other where events are many.
    """

    search: float | None
    simple: float | None
    how: str


@dataclass(frozen=True, repr=False, eq=False)
class ScoreCategories:
    """Categories of class probabilities, and what they keep of a sample.

    Attributes
    ----------
    s : mapping of str to array of shape (n_categories,)
        Yields of each signal.
    b : array of shape (n_categories,)
        Yields of all background processes; other signals are not in it.
    effective_b : array of shape (n_categories,)
        Effective counts of the real background that counts for the floors.
    z : mapping of str to float
        Significance of each signal, over all categories.
    value : float
        The goal.
    by_process : mapping of str to ProcessYields
    bound : Bound
        Of the events that the categories were found on.
    judged : Judged
        Goals of the search and of the simple way on events that they were not fitted on.
    path : tuple of ScoreCategories
        The records of all smaller numbers of categories; empty for other events.
    held_out : bool
        False if the categories were found on these very events, so that the goal is too high.
    notes : tuple of str
        A sentence for each category whose yields should not be believed.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma import categorise_scores
    >>> process = np.repeat(["H", "A", "b"], 400)
    >>> scores = np.random.default_rng(0).dirichlet([1, 1, 1], 1200) + 2 * (process[:, None] == ["H", "A", "b"])
    >>> scores /= scores.sum(axis=1, keepdims=True)
    >>> found = categorise_scores(scores, process, np.where(process == "b", 1.0, 0.05), 2, signals=["H", "A"],
    ...                           processes=["H", "A", "b"])
    >>> sorted(found.z), len(set(found.assign(scores).tolist()) - {-1})
    (['A', 'H'], 2)
    """

    s: Mapping[str, Array]
    b: Array
    effective_b: Array
    z: Mapping[str, float]
    value: float
    by_process: Mapping[str, ProcessYields]
    bound: Bound
    judged: Judged
    path: tuple[ScoreCategories, ...]
    held_out: bool
    notes: tuple[str, ...]
    region_rule: Rule
    settings: Settings

    def __len__(self) -> int:
        return self.b.size

    @property
    def way(self) -> str:
        """``"search"``, or ``"argmax"`` if the simple way was the better of the two."""
        return self.region_rule.name

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals."""
        return self.settings.roles.signals

    @property
    def processes(self) -> tuple[str, ...]:
        """Names of the columns of the scores."""
        return self.settings.roles.columns

    def __repr__(self) -> str:
        where = "on held-out events" if self.held_out else "on the events that chose them"
        way = "search" if self.way == "search" else "class by argmax and exact intervals"
        words = ", ".join(f"Z({name}) = {z:.4f}" for name, z in self.z.items())
        lines = [f"{len(self)} categories by {way}, goal ({self.settings.goal.name}) {self.value:.4f} {where}: {words}"]
        if None not in self.judged[:2]:
            lines.append(
                f"{self.judged.how} goal: search {self.judged.search:.4f}, simple way {self.judged.simple:.4f}; "
                f"bound with {len(self)} categories {self.bound.value:.4f}"
            )
        lines.append(" ".join([f"{'':>4}", *(f"{name:>12.12}" for name in self.signals), f"{'b':>12} {'eff. b':>10}"]))
        for k in range(len(self)):
            cells = " ".join(f"{self.s[name][k]:12.4g}" for name in self.signals)
            lines.append(f"{k:4} {cells} {self.b[k]:12.4g} {self.effective_b[k]:10.4g}")
        return "\n".join([*lines, *self.notes])

    def assign(self, scores: ArrayLike) -> IntArray:
        """Find the category of each event.

        Parameters
        ----------
        scores : array-like of shape (n_events, n_columns)
            Probabilities in the order of the columns on which the categories were found.

        Returns
        -------
        int array of shape (n_events,)
            From 0 to ``len(self) - 1``, or -1 for a discarded event.
        """
        return self.region_rule.assign(check_scores(scores, len(self.processes)))

    def evaluate(
        self,
        scores: ArrayLike,
        process: ArrayLike,
        sample_weight: ArrayLike,
        *,
        yields: Mapping[str, float] | None = None,
    ) -> ScoreCategories:
        """Fill the same categories with other events; their significances are what should be quoted.

        Parameters
        ----------
        scores, process, sample_weight
            As in `categorise_scores`, of events that neither trained the classifier nor chose the categories.
        yields : mapping of str to float, optional
            Full yields of processes, to which their weights are scaled if these events stand for the whole. By
            default the weights are taken as they are.

        Returns
        -------
        ScoreCategories
            A category in which a signal is negative or has no background is excluded from that signal's Z.
        """
        sample = check_sample(scores, process, sample_weight, self.settings.roles)
        if yields is not None:
            sample = sample.scaled(_factors(sample, yields))
        category = self.region_rule.assign(sample.scores)
        return filled(
            sample, category, self.region_rule, self.settings, held_out=True, bound=self.bound, judged=self.judged
        )

    def plot(
        self,
        ax: Any = None,
        *,
        axes: tuple[str, str] | None = None,
        scores: ArrayLike | None = None,
        **label: Unpack[Label],
    ) -> Any:
        """Draw the regions in two ratios of probabilities; see `region_figure.draw`."""
        from fivesigma.categories.several_signals.region_figure import draw

        given = None if scores is None else check_scores(scores, len(self.processes))
        return draw(self, ax, axes, given, **label)

    def to_hist(self) -> Any:
        """Yields and their variances as one `hist.Hist` (UHI) with the axes process and category."""
        return histogram_of(self.by_process)

    def to_pyhf(self, **options: Any) -> dict[str, Any]:
        """Describe the categories as a HistFactory workspace with one strength per signal; see `fivesigma.to_pyhf`."""
        return to_pyhf(self, **options)


def _factors(sample: ClassSample, yields: Mapping[str, float]) -> Array:
    """Factor of each process from its yield to the full one."""
    factor = np.ones(len(sample.names))
    have = sample.process_yields
    for name, full in yields.items():
        if name not in sample.names:
            raise InputError(f"yields has {name!r}, of which there are no events{did_you_mean(name, sample.names)}")
        at = sample.names.index(name)
        if not (full > 0 and have[at] > 0):
            raise InputError(f"yields of {name!r}: cannot scale {have[at]:g} to {full:g}; both must be > 0")
        factor[at] = full / have[at]
    return factor


def _objective(goal: Goal, yields: Array) -> Array:
    """Sum of F of each signal over the categories, zero where a category is excluded."""
    F = goal.objectives(yields)
    total: Array = np.where(np.isfinite(F), F, 0.0).sum(axis=0)
    return total


def goal_of(sample: ClassSample, category: IntArray, n_categories: int, goal: Goal) -> float:
    """Goal of events in categories."""
    n_classes = sample.n_signals + 1
    index = (category + 1) * n_classes + sample.classes
    yields = added(index, sample.weight, (n_categories + 1) * n_classes).reshape(-1, n_classes)[1:]
    return float(goal.value(_objective(goal, yields)))


def filled(
    sample: ClassSample,
    category: IntArray,
    rule: Rule,
    settings: Settings,
    *,
    held_out: bool,
    bound: Bound,
    judged: Judged,
) -> ScoreCategories:
    """Sum up what each category keeps."""
    n, n_signals = len(rule), sample.n_signals
    is_signal = np.arange(len(sample.names)) < n_signals
    rows = process_yields(category, n, sample.weight, Processes(sample.names, is_signal, sample.process))
    first = np.array([row.sum_of_weights for row in rows.values()])
    second = np.array([row.sum_of_squares for row in rows.values()])
    yields = np.concatenate([first[:n_signals], first[n_signals:].sum(axis=0, keepdims=True)]).T
    F = _objective(settings.goal, yields)
    floor, floor2 = first[sample.floor].sum(axis=0), second[sample.floor].sum(axis=0)
    effective = np.divide(floor * floor, floor2, out=np.zeros(n), where=floor2 > 0)
    return ScoreCategories(
        {name: first[m] for m, name in enumerate(sample.names[:n_signals])},
        yields[:, -1],
        effective,
        dict(zip(sample.names, np.sqrt(2 * F).tolist(), strict=False)),
        float(settings.goal.value(F)),
        rows,
        bound,
        judged,
        (),
        held_out,
        _notes(yields, effective, sample.names),
        rule,
        settings,
    )


def _notes(yields: Array, effective: Array, names: tuple[str, ...]) -> tuple[str, ...]:
    out = []
    for k, (row, count) in enumerate(zip(yields, effective, strict=True)):
        negative = [name for name, s in zip(names, row[:-1], strict=False) if s < 0]
        if negative:
            out.append(f"category {k} has a negative yield of {negative[0]!r}: it is excluded from its significance")
        if count < MIN_EFFECTIVE * (1 - 1e-9):
            out.append(f"category {k} has {count:.3g} effective background events: too few to believe its significance")
    return tuple(out)
