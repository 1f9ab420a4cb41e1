"""Which column plays which part: features, label, weight, process, identifier, and what is kept beside them."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from fivesigma.challenge import MISSING
from fivesigma.datasets.expression import Expression, split_definition
from fivesigma.errors import InputError, did_you_mean, shortened
from fivesigma.yields import KNOWN_PAIRS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray


__all__ = ["NEVER_FEATURES", "Columns", "Kind", "Source", "join_parts", "known_signal", "matches", "require"]

#: How a column is read: a feature, a weight, as it stands in the source (labels, ids, processes, kept columns), or raw
#: for expressions: numbers in their own type, text, or several numbers per event.
Kind = Literal["float32", "float64", "value", "raw"]

#: Patterns that are no features unless they are asked for by name.
NEVER_FEATURES = (
    *("EventId", "Label", "Weight", "Process", "Kaggle*"),
    *("event", "event_number", "eventNumber", "evt*", "run", "run_number", "runNumber", "lumi*", "luminosityBlock"),
    *("*weight*", "*Weight*", "sf", "SF", "sf_*", "SF_*", "*_sf", "*SF", "*SF_*", "sumw*", "sum_of_weights"),
    *("pass*", "flag*", "trig*", "HLT_*", "is_*", "mcChannelNumber", "dsid", "DSID"),
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
        """Read columns piece by piece; numbers get NaN for empty cells, values may not be empty.

        `rows` is the size of a piece for those that can be read in pieces of any size.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """How events are read: the role of each column, the code of what is missing, and the cut.

    What a user asks for becomes definite when `settled` has seen a source: patterns are then names, and "auto" is a
    column or None. `Events.columns` is such a settled record.

    Parameters
    ----------
    features : sequence of str, optional
        Names or glob patterns; None means every number column that has no other role.
    label, weight, process, ids : str, optional
        Their columns; None where there is no such column. `ids` may be "auto".
    keep : sequence of str
        Names or glob patterns of columns that are carried beside the features in their own type.
    missing : float, optional
        Code that means missing in feature columns.
    cut : str, optional
        Condition that events must pass.
    """

    features: tuple[str, ...] | None = None
    label: str | None = "Label"
    weight: str | None = "Weight"
    process: str | None = None
    ids: str | None = "auto"
    keep: tuple[str, ...] = ()
    missing: float | None = MISSING
    cut: str | None = None

    @classmethod
    def asked(
        cls, *, features: str | Sequence[str] | None = None, keep: str | Sequence[str] = (), **roles: Any
    ) -> Columns:
        """Take what a user wrote: one name is a list of one."""
        chosen = None if features is None else _listed(features)
        return cls(features=chosen, keep=_listed(keep), **roles)

    @classmethod
    def of_model(cls, model: Any) -> Columns:
        """How the training events of a fitted model were read, as far as it knows."""
        names = getattr(model, "feature_names_in_", None)
        known = getattr(model, "columns_", None)
        known = known if isinstance(known, dict) else {}
        roles = {role: known[role] for role in ("label", "weight", "process") if _is_text_or_none(known.get(role, 0))}
        missing = known.get("missing", MISSING)
        features = known.get("features")
        if names is not None:  # definitions are kept where they are known
            named = {_name_of(text): text for text in features or () if isinstance(text, str)}
            features = [named.get(str(name), str(name)) for name in names]
        listed = isinstance(features, list | tuple) and all(isinstance(name, str) for name in features)
        keep = known.get("keep", ())
        return cls(
            features=tuple(features) if listed and features else None,
            missing=missing if missing is None or isinstance(missing, int | float) else MISSING,
            keep=tuple(name for name in keep if isinstance(name, str)) if isinstance(keep, list | tuple) else (),
            **roles,
        )

    def there(self, names: Collection[str]) -> Columns:
        """The same for a file with these columns: the usual names are tried, and what the file lacks has no role."""

        def found(name: str) -> str | None:
            return name if name in names else None

        return replace(
            self,
            label=found(self.label or "Label"),
            weight=self.weight if self._can_weigh(names) else found("Weight"),
            process=found(self.process or "Process"),
        )

    def _can_weigh(self, names: Collection[str]) -> bool:
        """Whether the weight is one of these columns, or an expression of them."""
        if self.weight is None or self.weight in names:
            return self.weight is not None
        return _is_expression(self.weight) and Expression(self.weight, "weight").columns <= set(names)

    @property
    def named(self) -> dict[str, str]:
        """Columns of label, weight, process and identifier, those that there are, with their roles."""
        roles = {"label": self.label, "weight": self.weight, "process": self.process, "identifier": self.ids}
        return {name: role for role, name in roles.items() if name is not None}

    @property
    def expressions(self) -> dict[str, Expression]:
        """Expressions by the name of their value: defined features, and a weight that is not a column by itself."""
        found: dict[str, Expression] = {}
        for text in self.features or ():
            definition = split_definition(text)
            if definition is not None:
                found[definition[0]] = Expression(definition[1], f"feature {definition[0]!r}")
        return found

    def settled(self, source: Source) -> tuple[Columns, tuple[str, ...], tuple[str, ...]]:
        """Decide which column is what from the first source.

        Returns
        -------
        columns : Columns
        left_out : tuple of str
            Columns that cannot be features.
        held_back : tuple of str
            Number columns that could be features and are not, because of their names or because they are used
            otherwise; the challenge's own names go without saying.
        """
        there, numbers = frozenset(source.names), frozenset(source.numbers)
        ids = ("EventId" if "EventId" in there else None) if self.ids == "auto" else self.ids
        known = replace(self, ids=ids)
        taken = {name: role for name, role in known.named.items() if role != "weight" or name in there}
        for name, role in taken.items():
            require(name, source, _IF_UNLABELLED if role == "label" else "")
        kept = _expanded(self.keep, source, source.names)
        left_out: tuple[str, ...] = ()
        held_back: tuple[str, ...] = ()
        if self.features is None:
            used = frozenset[str]().union(*(e.columns for e in known.used(there)))
            reserved = taken.keys() | frozenset(kept) | used
            free = [name for name in source.names if name not in reserved and not matches(name, NEVER_FEATURES)]
            features = tuple(name for name in free if name in numbers)
            left_out = tuple(name for name in free if name not in numbers)
            known_names = frozenset((*features, *taken, *kept))
            others = [name for name in source.numbers if name not in known_names]
            held_back = tuple(name for name in others if not matches(name, NEVER_FEATURES[:5]))
        else:
            for name in self.features:
                if name in taken:
                    raise InputError(f"column {name!r} is the {taken[name]} and cannot be a feature as well")
            candidates = [name for name in source.numbers if name not in taken]
            features = _expanded(self.features, source, candidates)
            names = [_name_of(text) for text in features]
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise InputError(f"the feature {twice!r} is defined twice")
        if not features:
            raise InputError(f"no feature is left in {source.name}; name number columns with features= or --features")
        return replace(known, features=features, keep=kept), left_out, held_back

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, those of expressions as they are defined."""
        return tuple(_name_of(text) for text in self.features or ())

    def used(self, there: Collection[str]) -> list[Expression]:
        """The cut, and the weight if it is an expression of columns and not one of them."""
        found = [] if self.cut is None else [Expression(self.cut, "cut")]
        if self.weight is not None and self.weight not in there:
            found.append(Expression(self.weight, "weight"))
        return found

    def reading(self, source: Source) -> tuple[dict[str, Kind], dict[str, Expression], Expression | None]:
        """What is to be read of a source: columns, expressions by the name of their value, and the cut."""
        there = frozenset(source.names)
        derived = self.expressions
        plain = [text for text in self.features or () if _name_of(text) not in derived]
        kinds: dict[str, Kind] = dict.fromkeys(plain, "float32")
        others = (self.label, self.process, self.ids, *self.keep)
        kinds |= dict.fromkeys([name for name in others if name is not None], "value")
        cut = None if self.cut is None else Expression(self.cut, "cut")
        if self.weight is not None and self.weight in there:
            kinds[self.weight] = "float64"
        elif self.weight is not None:
            if not _is_expression(self.weight):
                require(self.weight, source)
            derived[WEIGHT] = Expression(self.weight, "weight")
        for name in kinds:
            if name not in there:
                require(name, source)
        for expression in (*derived.values(), *([] if cut is None else [cut])):
            for name in sorted(expression.columns):
                if name not in there:
                    require(name, source)
        return kinds, derived, cut


#: Under which a weight that is an expression is read; no column can be called so.
WEIGHT = "weight\0"


def _name_of(text: str) -> str:
    definition = split_definition(text)
    return text if definition is None else definition[0]


def _is_expression(text: str) -> bool:
    return any(mark in text for mark in "*/+-()[]<>=&|!% ")


def _listed(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


_IF_UNLABELLED = (
    "; name the column of the labels with label= or --label; label=None, or --label none, reads events without labels"
)


def require(name: str, source: Source, advice: str = "") -> None:
    """Refuse a column that `source` does not have, with the nearest names."""
    if name not in source.names:
        hint = did_you_mean(name, source.names)
        known = hint or f"; it has {some(source.names)}"
        raise InputError(f"no column {shortened(repr(name))} in {source.name}{known}{advice}")


def _expanded(patterns: Sequence[str], source: Source, candidates: Sequence[str]) -> tuple[str, ...]:
    """Turn names and glob patterns into names, each once, in the order asked for."""
    there = frozenset(source.names)
    chosen: dict[str, None] = {}
    for pattern in patterns:
        if pattern in there or split_definition(pattern) is not None:
            chosen[pattern] = None
            continue
        if not any(mark in pattern for mark in "*?["):
            require(pattern, source)
        found = [name for name in candidates if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            kind = "column" if candidates is source.names else "number column"
            raise InputError(f"no {kind} of {source.name} matches {pattern!r}; it has {some(candidates)}")
        chosen |= dict.fromkeys(found)
    return tuple(chosen)


def known_signal(labels: Sequence[Any], signal: Any, where: str) -> Any:
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


def join_parts(name: str, parts: Sequence[tuple[str, NDArray[Any]]]) -> NDArray[Any]:
    """Join a column that is in several places, without turning integers to floats.

    Parameters
    ----------
    name : str
        What to call the column in an error.
    parts : sequence of (str, array)
        Where each part is from, and the part.
    """
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
        wide = _whole_type(arrays)
        if wide is None:
            raise InputError(f"column {name!r} holds integers below 0 and above 2^63, which no integer type can hold")
        arrays = [part.astype(wide) for part in arrays]
    return np.concatenate(arrays)


def _whole_type(arrays: Iterable[NDArray[Any]]) -> type[np.integer[Any]] | None:
    """The 64-bit type that holds all these integers."""
    filled = [part for part in arrays if part.size]
    largest = max((int(part.max()) for part in filled), default=0)
    if largest < 2**63:
        return np.int64
    return np.uint64 if min(int(part.min()) for part in filled) >= 0 else None


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the glob patterns matches."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def some(items: Sequence[Any], most: int = 12) -> str:
    """The first items, and how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(shortened(repr(item)) for item in items[:most]) + more
