"""The simple way: each event belongs to its most probable class, and each signal has exact intervals of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fivesigma._types import Array
from fivesigma.categories.ratios.sample import Sample
from fivesigma.categories.several_signals.ascent import Floors
from fivesigma.categories.several_signals.goal import Goal
from fivesigma.categories.several_signals.intervals import Intervals, best_intervals
from fivesigma.categories.several_signals.rules import ArgmaxRule, Seen
from fivesigma.categories.several_signals.settings import Settings

# Positions in the menus of the signals, objectives, and content that is kept.
Way = tuple[tuple[int, ...], Array, Array]

_BEAM = 256  # ways to share out categories that are kept for each number: all of them for up to three signals


def simple_way(sample: Sample, events: Seen, settings: Settings) -> list[tuple[ArgmaxRule, Array] | None]:
    """Rules and yields of the simple way with one to `most` categories; None where the floors allow none.

    Every way to share out the categories among the signals is tried. What is in no interval is discarded or, where
    nothing may be, one category more.
    """
    roles, prior, goal, discard = settings.roles, settings.argmax_prior, settings.goal, settings.discard
    sample = replace(sample, scores=np.empty((sample.size, 0)))  # intervals need the probability alone
    menus: list[list[Intervals]] = []
    for signal, column in enumerate(roles.signal_columns):
        members = np.flatnonzero(events.column == column)
        value = events.probability[members]
        found = best_intervals(value, sample.part(members), signal, settings, discard=True) if members.size else []
        menus.append([Intervals.none(sample.n_signals), *found])
    counts = np.where(sample.floor[sample.process], sample.weight, 0.0)
    total = np.append(sample.class_yields, [counts.sum(), np.square(counts).sum()])
    out: list[tuple[ArgmaxRule, Array] | None] = []
    for numbers in _shared_out(menus, None if discard else total, goal, settings.floors, settings.n_categories):
        if numbers is None:
            out.append(None)
            continue
        parts = [menu[i] for menu, i in zip(menus, numbers, strict=True)]
        content = np.concatenate([part.content for part in parts])
        if not discard:
            content = np.concatenate([content, [total - content.sum(axis=0)]])
        rule = ArgmaxRule(roles.signal_columns, prior, tuple(part.edges for part in parts), rest=not discard)
        out.append((rule, content[:, :-2]))
    return out


def _shared_out(
    menus: list[list[Intervals]], total: Array | None, goal: Goal, floors: Floors, most: int
) -> list[tuple[int, ...] | None]:
    """Best position in each signal's menu, for one to `most` categories; with `total`, one of them is the rest."""
    n_signals = len(menus)
    ways: dict[int, list[Way]] = {0: [((), np.zeros(n_signals), np.zeros(n_signals + 3))]}
    for menu in menus:
        longer: dict[int, list[Way]] = {}
        items = [(goal.objectives(part.content[:, :-2]).sum(axis=0), part.content.sum(axis=0)) for part in menu]
        for number, so_far in ways.items():
            for at, (F, content) in enumerate(items):
                size = number + menu[at].edges.size
                if size <= most and np.isfinite(F).all():
                    longer.setdefault(size, []).extend((((*p, at), G + F, c + content)) for p, G, c in so_far)
        ways = {number: _best(some, goal, _BEAM) for number, some in longer.items()}
    if total is not None:
        ways = {number + 1: _with_rest(some, total, goal, floors) for number, some in ways.items()}
    best = [_best(ways.get(number, []), goal, 1) for number in range(1, most + 1)]
    return [some[0][0] if some else None for some in best]


def _with_rest(ways: list[Way], total: Array, goal: Goal, floors: Floors) -> list[Way]:
    """Ways with one more category of all that is left, where it reaches the floors."""
    out = []
    for positions, F, content in ways:
        rest = total - content
        if floors.hold(rest[-2:-1], rest[-1:])[0]:
            G = F + goal.objectives(rest[:-2])
            if np.isfinite(G).all():
                out.append((positions, G, total))
    return out


def _best(ways: list[Way], goal: Goal, number: int) -> list[Way]:
    """The ways with the largest goal."""
    if len(ways) <= number:
        return ways
    G = goal.value(np.array([F for _, F, _ in ways]))
    return [ways[i] for i in np.argsort(-G, kind="stable")[:number]]
