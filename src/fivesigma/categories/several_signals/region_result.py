"""Categories of several signals, filled with events: what each keeps, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import distance_transform_edt

from fivesigma._tools.drawing import Label, axes_or_current, draw_label
from fivesigma._tools.extras import need
from fivesigma._tools.summary import Summary, digits
from fivesigma._types import Array, IntArray
from fivesigma.categories.class_sample import ClassSample, add_up, check_sample, check_scores
from fivesigma.categories.floors import effective_counts
from fivesigma.categories.several_signals.goal import Goal, Settings
from fivesigma.categories.several_signals.region_rules import Category, Rule
from fivesigma.categories.workspace import FilledCategories
from fivesigma.cut.best_cut import MIN_EFFECTIVE
from fivesigma.errors import InputError, did_you_mean
from fivesigma.yields import Processes, ProcessYields, class_sums, process_yields

_POINTS = 400
_RANGE = 8.0  # of the logarithms, to both sides, if no events say otherwise
_DISCARDED = "#f2f2f2"
_BRIGHTNESS = np.array([0.299, 0.587, 0.114])  # of red, green and blue, as the eye sees them


class Bound(NamedTuple):
    """Upper bounds of the goal.

    Attributes
    ----------
    value : float
        The goal if every signal could have its own best K intervals of its calibrated ratio on these events, under the
        same floors. No K categories reach more where the calibrated ratios order the events rightly.
    z : mapping of str to float
        The Z of each signal that it is made of.
    any_number : float
        Of the goal with any number of categories: the f-divergences of the calibrated densities, in fine cells. It is
        right if they are; categories that follow the noise of few events can have more on these events.
    """

    value: float
    z: Mapping[str, float]
    any_number: float


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
class ScoreCategories(FilledCategories):
    """Categories of class probabilities, and what they keep of a sample.

    Attributes
    ----------
    by_process : mapping of str to ProcessYields
    bound : Bound
        Of the events that the categories were found on.
    judged : Judged
        Goals of the search and of the simple way on events that they were not fitted on.
    path : tuple of ScoreCategories
        The records of all smaller numbers of categories; empty for other events.
    held_out : bool
        False if the categories were found on these very events, so that the goal is too high.

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

    by_process: Mapping[str, ProcessYields]
    bound: Bound
    judged: Judged
    path: tuple[ScoreCategories, ...]
    held_out: bool
    region_rule: Rule
    settings: Settings

    @property
    def s(self) -> dict[str, Array]:
        """Yields of each signal in each category."""
        return {name: self.by_process[name].sum_of_weights for name in self.signals}

    @property
    def effective_b(self) -> Array:
        """Effective counts of the real background that counts for the floors."""
        floor = self.settings.roles.floor
        counted = {name: rows for name, rows in self.by_process.items() if floor is None or name in floor}
        return effective_counts(*class_sums(counted, signal=False))

    @cached_property
    def _yields(self) -> Array:
        """Yields of each category: of the signals, and of all background."""
        return np.array([*self.s.values(), self.b]).T

    @property
    def z(self) -> dict[str, float]:
        """Significance of each signal, over all categories."""
        F = _objective(self.settings.goal, self._yields)
        return dict(zip(self.signals, np.sqrt(2 * F).tolist(), strict=True))

    @property
    def value(self) -> float:
        """The goal."""
        return float(self.settings.goal.value(_objective(self.settings.goal, self._yields)))

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each category whose yields should not be believed."""
        out = []
        for k, (row, count) in enumerate(zip(self._yields, self.effective_b, strict=True)):
            negative = [name for name, s in zip(self.signals, row[:-1], strict=True) if s < 0]
            if negative:
                name = negative[0]
                out.append(f"category {k} has a negative yield of {name!r}: it is excluded from its significance")
            if count < MIN_EFFECTIVE * (1 - 1e-9):
                what = f"{count:.3g} effective background events"
                out.append(f"category {k} has {what}: too few to believe its significance")
        return tuple(out)

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

    def _summary(self) -> Summary:
        where = "on held-out events" if self.held_out else "on the events that chose them"
        way = "search" if self.way == "search" else "class by argmax and exact intervals"
        words = ", ".join(f"Z({name}) = {z:.4f}" for name, z in self.z.items())
        notes = list(self.notes)
        if None not in self.judged[:2]:
            notes.insert(
                0,
                f"{self.judged.how} goal: search {self.judged.search:.4f}, simple way {self.judged.simple:.4f}; "
                f"bound with {len(self)} categories {self.bound.value:.4f}",
            )
        columns = zip(*(self.s[name] for name in self.signals), self.b, self.effective_b, strict=True)
        return Summary(
            f"{len(self)} categories by {way}, goal ({self.settings.goal.name}) {self.value:.4f} {where}: {words}",
            ("", *self.signals, "b", "eff. b"),
            [(str(k), *map(digits, row)) for k, row in enumerate(columns)],
            notes,
        )

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
        return self.region_rule.assign(check_scores(scores, len(self.processes))).astype(np.intp)

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
            have = dict(zip(sample.names, sample.process_yields.tolist(), strict=True))
            for name, full in yields.items():
                if name not in have:
                    raise InputError(f"yields has {name!r}, of which there are no events{did_you_mean(name, have)}")
                if not (full > 0 and have[name] > 0):
                    raise InputError(f"yields of {name!r}: cannot scale {have[name]:g} to {full:g}; both must be > 0")
            sample = sample.scaled_to(np.array([*(have | dict(yields)).values()]))
        by_process = fill_regions(sample, self.region_rule.assign(sample.scores), len(self))
        return replace(self, by_process=by_process, path=(), held_out=True)

    def plot(
        self,
        ax: Any = None,
        *,
        axes: tuple[str, str] | None = None,
        scores: ArrayLike | None = None,
        **label: Unpack[Label],
    ) -> Any:
        """Draw the category of every point of log(p_1 / p_b) and log(p_2 / p_b), p_b being all background.

        Every region has the number of its category where most of it lies. Further signals have the probability of the
        background, divided by 1,000; several background columns have equal parts of it.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; the current axes if not given.
        axes : (str, str), optional
            The two signals; by default the first ones.
        scores : array-like of shape (n_events, n_columns), optional
            Events whose range the figure has.
        **label
            As in `Categories.plot`.
        """
        pyplot = need("matplotlib.pyplot")
        colours = need("matplotlib.colors")
        if len(self.signals) < 2:
            raise InputError("there is one signal only; a figure of regions needs the ratios of two")
        x, y = axes if axes is not None else self.signals[:2]
        for name in (x, y):
            if name not in self.signals:
                raise InputError(f"no signal is called {name!r}{did_you_mean(name, self.signals)}")
        columns = self.processes
        backgrounds = self.settings.roles.background_columns
        at_x, at_y = columns.index(x), columns.index(y)
        spans = [(-_RANGE, _RANGE)] * 2
        if scores is not None:
            given = check_scores(scores, len(self.processes))
            with np.errstate(divide="ignore"):
                logs = np.log(given[:, [at_x, at_y]]) - np.log(given[:, backgrounds].sum(axis=1, keepdims=True))
            spans = [tuple(np.quantile(column[np.isfinite(column)], (0.001, 0.999))) for column in logs.T]
        grid_x, grid_y = np.meshgrid(*(np.linspace(*span, _POINTS) for span in spans))
        p = np.full((grid_x.size, len(columns)), 1e-3)
        p[:, backgrounds] = 1.0 / len(backgrounds)
        p[:, at_x], p[:, at_y] = np.exp(grid_x.ravel()), np.exp(grid_y.ravel())
        category = self.assign(p / p.sum(axis=1, keepdims=True)).reshape(grid_x.shape)
        palette = pyplot.get_cmap("viridis")(np.linspace(0.15, 1.0, len(self)))
        cmap = colours.ListedColormap([colours.to_rgba(_DISCARDED), *palette])
        ax = axes_or_current(ax)
        ax.pcolormesh(grid_x, grid_y, category, cmap=cmap, vmin=-1.5, vmax=len(self) - 0.5, rasterized=True)
        for k in range(-1, len(self)):
            inside = category == k
            if inside.sum() > 0.002 * inside.size:
                where = _middle(inside)
                number = "discarded" if k < 0 else str(k)
                colour = "black" if k < 0 or palette[k, :3] @ _BRIGHTNESS > 0.45 else "white"
                ax.text(grid_x[where], grid_y[where], number, color=colour, ha="center", va="center", fontsize="small")
        ax.set_xlabel(f"log(p({x}) / p(background))")
        ax.set_ylabel(f"log(p({y}) / p(background))")
        title = f"{len(self)} categories, {self.settings.goal.name} goal {self.value:.3f}"
        ax.set_title(title, pad=2 * ax.title.get_size() if label else None)
        draw_label(ax, **label)
        return ax


def _middle(inside: Any) -> tuple[int, int]:
    """A point well inside a region: the one that is farthest from its border and from that of the figure."""
    depth = distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
    row, column = divmod(int(depth.argmax()), inside.shape[1])
    return row, column


def _objective(goal: Goal, yields: Array) -> Array:
    """Sum of F of each signal over the categories, zero where a category is excluded."""
    F = goal.objectives(yields)
    return np.asarray(np.where(np.isfinite(F), F, 0.0).sum(axis=0))


def goal_of(sample: ClassSample, category: Category, n_categories: int, goal: Goal) -> float:
    """Goal of events in categories."""
    n_classes = sample.n_signals + 1
    index = (category.astype(np.intp) + 1) * n_classes + sample.classes
    yields = add_up(index, sample.weight, (n_categories + 1) * n_classes).reshape(-1, n_classes)[1:]
    return float(goal.value(_objective(goal, yields)))


def fill_regions(sample: ClassSample, category: Category, n_categories: int) -> dict[str, ProcessYields]:
    """Sum up what each category keeps."""
    processes = Processes(sample.names, np.arange(len(sample.names)) < sample.n_signals, sample.process)
    return process_yields(category.astype(np.intp), n_categories, sample.weight, processes)
