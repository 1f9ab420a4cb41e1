"""Codec of categories: records of ours, field by field, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from fivesigma.categories import Categories
from fivesigma.categories.class_ratios import OneRatio, Ratios
from fivesigma.categories.class_sample import Roles
from fivesigma.categories.floors import Floors
from fivesigma.categories.several_signals.goal import Goal, Settings
from fivesigma.categories.several_signals.region_result import Bound, Judged, ScoreCategories
from fivesigma.categories.several_signals.region_rules import ArgmaxRule, LinearRule
from fivesigma.errors import StoreError
from fivesigma.likelihood.shifts import YieldShifts
from fivesigma.store.packing import TAG, Codec, Packer, Unpacker
from fivesigma.yields import ProcessYields

_KINDS: tuple[Any, ...] = (
    *(Categories, Floors, OneRatio, YieldShifts, ProcessYields),
    *(ScoreCategories, Ratios, Roles, Goal, Settings, Bound, Judged, LinearRule, ArgmaxRule),
)
RECORDS = MappingProxyType({kind.__name__: kind for kind in _KINDS})
STORABLE_RECORDS = (Categories.__name__, ScoreCategories.__name__)


def _names(kind: Any) -> tuple[str, ...]:
    """Parameters of the constructor."""
    return tuple(one.name for one in fields(kind) if one.init) if is_dataclass(kind) else tuple(kind._fields)


def _pack(packer: Packer, value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, Goal) and callable(value.kind):
        raise StoreError("categories whose goal is a function cannot be saved; a file holds no code")
    parts = {name: _ordered(packer, getattr(value, name), f"{where}.{name}") for name in _names(type(value))}
    return {"class": type(value).__name__, "fields": parts}


def _ordered(packer: Packer, value: Any, where: str) -> Any:
    """Pack a value; mappings keep their order, which the manifest's own objects do not."""
    if not isinstance(value, Mapping):
        return packer.pack(value, where)
    return {TAG: "mapping", "items": [[key, _ordered(packer, item, f"{where}.{key}")] for key, item in value.items()]}


def _unpack(unpacker: Unpacker, given: dict[str, Any], where: str) -> Any:
    name = unpacker.typed(given, "class", str, where)
    if name not in RECORDS:
        raise StoreError(f"{where} in the manifest is a {name[:40]!r}, which is no part of categories")
    kind, parts = RECORDS[name], unpacker.typed(given, "fields", dict, where)
    if set(parts) != set(_names(kind)):
        raise StoreError(f"{where} in the manifest has not the fields of a {name}")
    found = kind(**parts)
    if name in STORABLE_RECORDS and not _fits(found):
        raise StoreError(f"{where} in the manifest holds parts that do not fit each other")
    return found


def _fits(record: Any) -> bool:
    """Whether the parts of a record fit each other, and events can be put into its categories."""
    n = len(record)
    if not all(np.shape(column) == (n,) for row in record.by_process.values() for column in row[1:]):
        return False
    columns = getattr(record, "processes", None) or (None if record.ratio is None else record.ratio.processes)
    score = np.zeros(1) if columns is None else np.full((1, len(columns)), 1 / len(columns))
    return bool(repr(record)) and -1 <= int(record.assign(score)[0]) < n


CODECS = (Codec("record", lambda value: type(value) in _KINDS, _pack, _unpack),)
