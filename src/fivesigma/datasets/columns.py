"""What is asked of events: the role of each column, the cut, and the normalisation of processes."""

from __future__ import annotations

import fnmatch
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

import numpy as np

from fivesigma._types import AnyArray
from fivesigma.challenge import MISSING
from fivesigma.datasets.expression import Expression, split_definition
from fivesigma.errors import InputError, did_you_mean, shortened
from fivesigma.yields import KNOWN_PAIRS

#: How a column is read: a feature, a weight, as it stands in the source (labels, ids, processes, kept columns), or raw
#: for expressions: numbers in their own type, text, or several numbers per event.
Kind = Literal["float32", "float64", "value", "raw"]

BY_PROCESS = ("weight", "cut")  # what may be a mapping of processes
_MAPPINGS = ("varied", "cross_section", "sum_of_weights", "factors")
_CHALLENGE = ("EventId", "Label", "Weight", "Process", "Kaggle*")
#: Patterns that are no features unless they are asked for by name; those without capitals ignore case.
NEVER_FEATURES = (
    *_CHALLENGE,
    *("event", "event_number", "*eventnumber", "evt*", "run", "run_number", "*runnumber", "lumi*", "bunchcrossing"),
    *("*weight*", "sf", "sf_*", "*_sf", "*SF", "*SF_*", "sumw*", "sum_of_weights", "xsec*"),
    *("cross_section", "kfactor*", "dsid", "mcchannelnumber"),
    *("pass*", "flag*", "trig*", "hlt*", "l1_*", "l1simulation*", "xtrig*", "is_*"),
    *("gen*", "ngen*", "*fiducialgen*", "lhe*", "nlhe*", "htxs*", "*truth*", "mc_*", "MC[a-z]*", "pileup*"),
    *("index_ref", "eventinfo*", "*Up", "*Down", "*UpDelta*", "*_up", "*_down", "*__1up", "*__1down"),
)


class Source(Protocol):
    """One file or one object in memory: its columns, and a way to read some of them."""

    @property
    def name(self) -> str:
        """What error messages call it."""

    @property
    def names(self) -> Sequence[str]:
        """All columns, in order."""

    @property
    def numbers(self) -> Sequence[str]:
        """The columns that hold one number per event, in order."""

    def chunks(self, kinds: Mapping[str, Kind], rows: int | None = None) -> Iterator[dict[str, Any]]:
        """Read columns in pieces of so many rows, or as the format is best read; numbers have NaN for empty cells.

        Of what a column should be, a source makes what it does best: `fivesigma.datasets.blocks` does the rest.
        """


class Plan(NamedTuple):
    """What is to be read of a source: columns, expressions by the name of their value, and the cut."""

    kinds: dict[str, Kind]
    derived: dict[str, Expression]
    cut: Expression | None

    @property
    def raw(self) -> frozenset[str]:
        """Columns that expressions use."""
        return frozenset[str]().union(*(each.columns for each in (*self.derived.values(), self.cut) if each))


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """How events are read: what `load_events` was asked for, but for the files.

    What a user asks for becomes definite when `settled` has seen a source: patterns are then names, and "auto" is a
    column or None. `Events.columns` is such a settled record, and a model keeps it as `columns_`. By ``factors`` the
    weights of each process were multiplied, once its files were seen.
    """

    features: Sequence[str] | None = None
    label: str | None = "Label"
    signal: Any = None
    weight: Any = "Weight"  # text or None for all events, or a mapping of processes to such
    process: str | None = None
    ids: str | None = "auto"
    keep: Sequence[str] = ()
    missing: float | None = MISSING
    tree: str | None = None
    cut: Any = None  # likewise
    varied: Mapping[str, str] = field(default_factory=dict)
    luminosity: float | None = None
    cross_section: Mapping[str, float | None] = field(default_factory=dict)
    sum_of_weights: Mapping[str, float | str] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        """Make one name a list of one, and refuse what is of another kind."""
        listed = {
            "features": None if self.features is None else _as_tuple(self.features),
            "keep": _as_tuple(self.keep),
            **{name: dict(getattr(self, name) or {}) for name in _MAPPINGS},
        }
        for name, value in listed.items():
            object.__setattr__(self, name, value)  # the dataclass is frozen
        for name in ("label", *BY_PROCESS, "process", "ids", "tree"):
            value = getattr(self, name)
            several = name in BY_PROCESS and isinstance(value, Mapping)
            for text in value.values() if several else (value,):
                if text is not None and not isinstance(text, str):
                    by_process = " or {process: text}" if name in BY_PROCESS else ""
                    raise InputError(f"{name} must be text{by_process}, got {type(text).__name__}")

    @classmethod
    def of_model(cls, model: Any) -> Columns:
        """How the training events of a fitted model were read, as far as it knows."""
        known = getattr(model, "columns_", None)
        known = known if isinstance(known, dict) else {}
        usual = {each.name for each in fields(cls)} - {"ids"}
        roles = {name: value for name, value in known.items() if name in usual}
        names = getattr(model, "feature_names_in_", None)
        if names is not None:  # definitions are kept where they are known
            named = {name_of(text): text for text in roles.get("features") or ()}
            roles["features"] = [named.get(str(name), str(name)) for name in names]
        return cls(**roles | {"features": roles.get("features") or None})

    @property
    def named(self) -> dict[str, str]:
        """Columns of label, weight, process and identifier, those that there are, with their roles."""
        roles = [("label", self.label), ("process", self.process), ("identifier", self.ids)]
        roles += [("weight", text) for text in _texts(self.weight)]
        return {name: role for role, name in roles if name is not None}

    def of_process(self, process: str | None) -> Columns:
        """The same with the weight and the cut of one process."""
        several = {name: getattr(self, name) for name in BY_PROCESS if isinstance(getattr(self, name), Mapping)}
        return replace(self, **{name: texts[process] for name, texts in several.items()}) if several else self

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, those of expressions as they are defined."""
        return tuple(name_of(text) for text in self.features or ())

    @property
    def kept_names(self) -> tuple[str, ...]:
        """Names of what is kept beside the features."""
        return tuple(name_of(text) for text in self.keep)

    @property
    def expressions(self) -> dict[str, Expression]:
        """Expressions of defined features and kept columns, by the name of their value."""
        return _definitions(self.features or (), "feature") | _definitions(self.keep, "kept column")

    def settle(self, source: Source, process: str | None = None) -> tuple[Columns, tuple[str, ...], tuple[str, ...]]:
        """Decide which column is what from the first source; which columns cannot be features, and which could.

        The last are number columns that are no features because of their names or because they are used otherwise; the
        challenge's own names go without saying.
        """
        there, numbers = frozenset(source.names), frozenset(source.numbers)
        ids = ("EventId" if "EventId" in there else None) if self.ids == "auto" else self.ids
        if self.label is not None and not can_be_read(self.label, there):
            require(self.label, source, _IF_UNLABELLED)
        known = replace(self, ids=ids, features=(), keep=_expand(self.keep, source, source.names))
        taken = known.named
        others = known.of_process(process).reading(source)  # which refuses what the source lacks
        left_out: tuple[str, ...] = ()
        held_back: tuple[str, ...] = ()
        if self.features is None:
            reserved = others.kinds.keys() | others.raw
            for text in (*_texts(self.weight), *_texts(self.cut)):  # of all processes
                reserved |= {text} if text in there else Expression(text, "weight or cut").columns
            free = [name for name in source.names if name not in reserved and not matches(name, NEVER_FEATURES)]
            features = tuple(name for name in free if name in numbers)
            left_out = tuple(name for name in free if name not in numbers)
            said = frozenset((*features, *others.kinds))
            held_back = tuple(n for n in source.numbers if n not in said and not matches(n, _CHALLENGE))
        else:
            for name in self.features:
                if name in taken:
                    raise InputError(f"column {name!r} is the {taken[name]} and cannot be a feature as well")
            features = _expand(self.features, source, [name for name in source.numbers if name not in taken])
        _refuse_repeated(features, known.keep)
        if not features:
            raise InputError(f"no feature is left in {source.name}; name number columns with features= or --features")
        return replace(known, features=features), left_out, held_back

    def reading(self, source: Source) -> Plan:
        """What is to be read of a source."""
        there = frozenset(source.names)
        derived = self.expressions
        kinds: dict[str, Kind] = dict.fromkeys([n for n in self.feature_names if n not in derived], "float32")
        label = self.label
        if label is not None and label not in there:
            derived[label], label = Expression(label, "label"), None
        others = (label, self.process, self.ids, *(n for n in self.kept_names if n not in derived))
        kinds |= dict.fromkeys([name for name in others if name is not None], "value")
        cut = None if self.cut is None else Expression(self.cut, "cut")
        if self.weight is not None and self.weight in there:
            kinds[self.weight] = "float64"
        elif self.weight is not None:
            derived[WEIGHT] = Expression(self.weight, "weight")
        plan = Plan(kinds, derived, cut)
        for name in (*kinds, *sorted(plan.raw)):
            if name not in there:
                require(name, source)
        return plan


A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


def asks(record: Callable[P, Columns]) -> Callable[[Callable[[A, Columns], R]], Callable[Concatenate[A, P], R]]:
    """Give a function of (source, record) the parameters of the record, which are spelled out there alone."""

    def decorate(function: Callable[[A, Columns], R]) -> Callable[Concatenate[A, P], R]:
        first = next(iter(inspect.signature(function).parameters.values()))
        build: Callable[..., Columns] = record

        @functools.wraps(function)
        def call(*args: Any, **asked: Any) -> R:
            source = args[0] if args else asked.pop(first.name)
            return function(source, build(*args[1:], **asked))

        others = [each for each in inspect.signature(record).parameters.values() if each.name != "factors"]
        call.__signature__ = inspect.Signature([first, *others])  # type: ignore[attr-defined]
        return call

    return decorate


def can_be_read(text: str | None, names: Collection[str]) -> bool:
    """Whether it is one of these columns, or an expression of them."""
    if text is None or text in names:
        return text is not None
    expression = _parse(text)
    return expression is not None and expression.columns <= set(names)


def _parse(text: str) -> Expression | None:
    """The expression that a text is, or None."""
    try:
        return Expression(text, "column")
    except InputError:
        return None


#: Under which a weight that is an expression is read; no column can be called so.
WEIGHT = "weight\0"


def _texts(value: Any) -> list[str]:
    """One text for all events, or those of all processes."""
    return [text for text in (value.values() if isinstance(value, Mapping) else (value,)) if text is not None]


def name_of(text: str) -> str:
    """Name of a column, or of the value of a definition."""
    definition = split_definition(text)
    return text if definition is None else definition[0]


def _definitions(texts: Sequence[str], what: str) -> dict[str, Expression]:
    """Expressions by the name that they define."""
    found = [definition for definition in map(split_definition, texts) if definition is not None]
    return {name: Expression(text, f"{what} {name!r}") for name, text in found}


def _refuse_repeated(features: Sequence[str], kept: Sequence[str]) -> None:
    """Refuse a name that means two things."""
    names = [name_of(text) for text in features]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"the feature {twice!r} is defined twice")
    defined = dict(zip(names, features, strict=True))
    for text in kept:
        if defined.get(name_of(text), text) != text:
            raise InputError(f"{name_of(text)!r} is a feature and a kept column with other values; rename one of them")


def _as_tuple(names: Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


_IF_UNLABELLED = (
    "; name the column of the labels with label= or --label; label=None, or --label none, reads events without labels"
)


def require(name: str, source: Source, advice: str = "") -> None:
    """Refuse a column that `source` does not have, with the nearest names."""
    if name not in source.names:
        hint = did_you_mean(name, source.names)
        known = hint or f"; it has {some(source.names)}"
        if re.search(r"'[^'?]*[:/ -][^']*'", hint):
            known += " (in an expression such a name stands in backticks)"
        raise InputError(f"no column {shortened(repr(name))} in {source.name}{known}{advice}")


def _expand(patterns: Sequence[str], source: Source, candidates: Sequence[str]) -> tuple[str, ...]:
    """Turn names and glob patterns into names, each once, in the order asked for; ``x[0]`` becomes a definition."""
    there = frozenset(source.names)
    chosen: dict[str, None] = {}
    for pattern in patterns:
        if pattern in there or split_definition(pattern) is not None:
            chosen[pattern] = None
            continue
        found = [name for name in candidates if fnmatch.fnmatchcase(name, pattern)]
        if found:
            chosen |= dict.fromkeys(found)
            continue
        expression = _parse(pattern)
        if expression is not None and pattern not in expression.columns and expression.columns <= there:
            # Without brackets, which XGBoost does not take in a name.
            chosen[f"{re.sub(r'[^A-Za-z0-9_]+', '_', pattern).strip('_')} = {pattern}"] = None
            continue
        if not any(mark in pattern for mark in "*?["):
            require(pattern, source)
        kind = "column" if candidates is source.names else "number column"
        raise InputError(f"no {kind} of {source.name} matches {pattern!r}; it has {some(candidates)}")
    return tuple(chosen)


def find_signal(labels: Sequence[Any], signal: Any, where: str) -> Any:
    """Return the label of `labels` that means signal, or refuse to guess."""
    if signal is not None:
        # The command line has text only, so '1' finds the number 1.
        for match in (lambda label: label == signal, lambda label: str(label) == str(signal)):
            found = [label for label in labels if match(label)]
            if found:
                return found[0]
        raise InputError(f"no event in {where} has the signal label {signal!r}; the labels are {some(labels)}")
    plain = {label.casefold() if isinstance(label, str) else label: label for label in labels}
    for first, second in KNOWN_PAIRS:
        if set(plain) == {first, second}:
            return plain[first]
    raise InputError(
        f"the labels {some(labels)} in {where} do not say which is signal; name it with signal= or --signal"
    )


def join_parts(name: str, parts: Sequence[tuple[str, AnyArray]]) -> AnyArray:
    """Join a column whose parts are from several places, without turning integers to floats."""
    arrays = [part for _, part in parts]
    if len(arrays) == 1:
        return arrays[0]
    is_text = [part.dtype.kind in "US" for part in arrays]
    if any(is_text) and not all(is_text):
        text, number = parts[is_text.index(True)][0], parts[is_text.index(False)][0]
        raise InputError(f"column {name!r} holds text in {text} and numbers in {number}; make them alike")
    kinds = {part.dtype.kind for part in arrays}
    whole = [part for part in arrays if part.size and part.dtype.kind in "iu"]
    if "f" in kinds and any(max(-int(part.min()), int(part.max())) > 2**53 for part in whole):
        raise InputError(
            f"column {name!r} holds integers above 2^53 in one place and floats in another; make them alike"
        )
    if kinds == {"i", "u"}:
        # NumPy joins uint64 and int64 as float64, in which neighbours above 2^53 are the same.
        below, above = any(part.min() < 0 for part in whole), any(part.max() >= 2**63 for part in whole)
        if below and above:
            raise InputError(f"column {name!r} holds integers below 0 and above 2^63, which no integer type can hold")
        arrays = [part.astype(np.uint64 if above else np.int64) for part in arrays]
    return np.concatenate(arrays)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the glob patterns matches; one without capitals ignores case."""
    return any(fnmatch.fnmatchcase(name.lower() if p == p.lower() else name, p) for p in patterns)


def some(items: Sequence[Any], most: int = 12) -> str:
    """The first items, and how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(shortened(repr(item)) for item in items[:most]) + more
