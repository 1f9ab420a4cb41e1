"""Codecs of plain values: numbers that JSON has not, arrays, paths, utilities, and the rounds of a cascade."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, fields
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from fivesigma import significance
from fivesigma.cascade import ClassWeights, History, Round
from fivesigma.errors import StoreError
from fivesigma.store.packing import Codec, Packer, Unpacker

_NUMBERS = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")
_TEXT = re.compile(r"[<>]U(\d{1,4})")
_UTILITIES = ("AMS2", "AMS3", "SOverRootSB", "OnOff", "GaussianBackground", "RelativeBackground")
_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _pack_array(packer: Packer, value: Any, where: str) -> dict[str, Any] | None:
    array = np.asarray(value)
    dtype = array.dtype.str
    if array.dtype == object:
        if not all(type(item) is str for item in array.ravel()):
            return None
        dtype = "text"  # column names are objects in scikit-learn
    elif not (_NUMBERS.fullmatch(dtype) or _TEXT.fullmatch(dtype)):
        return None
    data = packer.pack(array.ravel().tolist(), where)
    return {"dtype": dtype, "shape": list(array.shape), "data": data}


def _unpack_array(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Any:
    dtype = unpacker.typed(fields, "dtype", str, where)
    shape = unpacker.typed(fields, "shape", list, where)
    data = unpacker.typed(fields, "data", list, where)
    text = dtype == "text" or bool(_TEXT.fullmatch(dtype))
    if not (text or _NUMBERS.fullmatch(dtype)):
        raise StoreError(f"{where}.dtype in the manifest is {dtype[:40]!r}, which no model needs")
    if not all(isinstance(item, str if text else int | float) for item in data):
        raise StoreError(f"{where}.data in the manifest does not hold {'text' if text else 'numbers'} only")
    array = np.array(data, dtype=object if dtype == "text" else dtype).reshape([int(n) for n in shape])
    return array if array.ndim or dtype == "text" else array[()]


def _unpack_utility(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Any:
    name = unpacker.typed(fields, "class", str, where)
    if name not in _UTILITIES:
        raise StoreError(f"{where} in the manifest is the utility {name[:40]!r}; known are {', '.join(_UTILITIES)}")
    parameters = unpacker.typed(fields, "parameters", dict, where)
    return getattr(significance, name)(**{key: _number(value) for key, value in parameters.items()})


def _pack_round(packer: Packer, value: Round, where: str) -> dict[str, Any]:
    record = {**value.to_dict(), "class_weights": list(value.class_weights), "following": list(value.following)}
    return {name: packer.pack(item, where) for name, item in record.items()}


_FLAGS = ("counts", "improved")
_COUNTS = ("index", "restart")
_MAYBE = ("u", "surrogate_before", "surrogate_after", "train_s", "train_b")


def _unpack_round(unpacker: Unpacker, record: dict[str, Any], where: str) -> Round:
    known = {f.name for f in fields(Round)}
    if set(record) != known:
        raise StoreError(f"{where} in the manifest has not the fields of a round")
    values: dict[str, Any] = {}
    for name in known:
        if name in _FLAGS:
            values[name] = unpacker.typed(record, name, bool, where)
        elif name in _COUNTS:
            values[name] = unpacker.typed(record, name, int, where)
        elif name == "class_weights":
            signal, background = unpacker.typed(record, name, list, where)
            values[name] = (_number(signal), _number(background))
        elif name == "following":
            signal, background, u = unpacker.typed(record, name, list, where)
            values[name] = ClassWeights(_number(signal), _number(background), None if u is None else _number(u))
        else:
            value = unpacker.unpack(record[name], f"{where}.{name}")
            values[name] = None if value is None and name in _MAYBE else _number(value)
    return Round(**values)


def _number(value: Any) -> float | int:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise StoreError(f"the manifest has {str(value)[:40]!r} where a number belongs")
    return value


def _unpack_history(unpacker: Unpacker, fields: dict[str, Any], where: str) -> History:
    rounds = unpacker.typed(fields, "rounds", list, where)
    if not all(isinstance(r, Round) for r in rounds):
        raise StoreError(f"{where}.rounds in the manifest holds something else than rounds")
    return History(rounds)


def _unpack_random_state(unpacker: Unpacker, fields: dict[str, Any], where: str) -> np.random.RandomState:
    state = np.random.RandomState()
    state.set_state(unpacker.typed(fields, "state", tuple, where))
    return state


CODECS = (
    Codec(
        "number",
        lambda value: type(value) is float,  # finite ones are plain JSON
        lambda _packer, value, _where: {"value": str(value)},
        lambda _unpacker, fields, _where: _SPECIAL[fields["value"]],
    ),
    Codec(
        "utility",
        lambda value: type(value).__name__ in _UTILITIES and isinstance(value, significance.Utility),
        lambda packer, value, where: {"class": type(value).__name__, "parameters": packer.pack(asdict(value), where)},
        _unpack_utility,
    ),
    Codec(
        "history",
        lambda value: type(value) is History,
        lambda packer, value, where: {"rounds": packer.pack(list(value), where)},
        _unpack_history,
    ),
    Codec("round", lambda value: type(value) is Round, _pack_round, _unpack_round),
    Codec(
        "tuple",
        lambda value: type(value) is tuple,
        lambda packer, value, where: {"items": packer.pack(list(value), where)},
        lambda unpacker, fields, where: tuple(unpacker.typed(fields, "items", list, where)),
    ),
    Codec(
        "mapping",
        lambda value: type(value) is dict,  # keys that are not text, or that look like a tag
        lambda packer, value, where: {"items": packer.pack([list(pair) for pair in value.items()], where)},
        lambda unpacker, fields, where: dict(unpacker.typed(fields, "items", list, where)),
    ),
    Codec("array", lambda value: isinstance(value, np.ndarray | np.generic), _pack_array, _unpack_array),
    Codec(
        "path",
        lambda value: isinstance(value, PurePath),
        lambda _packer, value, _where: {"path": str(value)},
        lambda unpacker, fields, where: Path(unpacker.typed(fields, "path", str, where)),
    ),
    Codec(
        "random_state",
        lambda value: type(value) is np.random.RandomState,
        lambda packer, value, where: {"state": packer.pack(value.get_state(legacy=True), where)},
        _unpack_random_state,
    ),
)
