"""Codecs of plain values: numbers that JSON has not, arrays, paths, utilities, and the rounds of a cascade.

A small array stands in the manifest, a larger one in a file of its own in NumPy's format, without pickle.
"""

from __future__ import annotations

import io
import math
import re
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from fivesigma.cascade.rounds import History, Round
from fivesigma.errors import StoreError
from fivesigma.significance import UTILITIES
from fivesigma.store.packing import Codec, Packer, Unpacker

_NUMBERS = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")
_TEXT = re.compile(r"[<>]U\d{1,4}")
_INLINE = 64  # numbers that may stand in the manifest
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
    if array.size > _INLINE and dtype != "text":
        stream = io.BytesIO()
        np.lib.format.write_array(stream, array, allow_pickle=False)
        return {"file": packer.add_file(stream.getvalue(), ".npy")}
    data = packer.pack(array.ravel().tolist(), where)
    return {"dtype": dtype, "shape": list(array.shape), "data": data}


def _unpack_array(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Any:
    if "file" in fields:
        return np.lib.format.read_array(io.BytesIO(unpacker.file(fields, where)), allow_pickle=False)
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
    known = {kind.__name__: kind for kind in UTILITIES.values()}
    if name not in known:
        raise StoreError(f"{where} in the manifest is the utility {name[:40]!r}; known are {', '.join(known)}")
    parameters = unpacker.typed(fields, "parameters", dict, where)
    return known[name](**{key: _number(value) for key, value in parameters.items()})


def _number(value: Any) -> float | int:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise StoreError(f"the manifest has {str(value)[:40]!r} where a number belongs")
    return value


def _pack_history(packer: Packer, value: History, where: str) -> dict[str, Any]:
    columns = value.to_columns()
    table = np.array(list(columns.values()), dtype=np.float64).reshape(len(columns), len(value))  # None becomes NaN
    return {"columns": list(columns), "table": packer.pack(table, where)}


def _unpack_history(unpacker: Unpacker, fields: dict[str, Any], where: str) -> History:
    names = unpacker.typed(fields, "columns", list, where)
    table = unpacker.typed(fields, "table", np.ndarray, where)
    if table.dtype != np.float64 or table.ndim != 2 or len(table) != len(names):
        raise StoreError(f"{where} in the manifest has not one row of numbers for each of {len(names)} columns")
    return History.from_columns(dict(zip(names, table.tolist(), strict=True)))


def _unpack_random_state(unpacker: Unpacker, fields: dict[str, Any], where: str) -> np.random.RandomState:
    given = unpacker.typed(fields, "state", tuple, where)
    if len(given) != 5 or given[0] != "MT19937" or type(given[2]) is not int or not 0 <= given[2] <= 624:
        raise StoreError(f"{where}.state in the manifest is not the state of a random generator")
    state = np.random.RandomState()
    state.set_state(given)
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
        lambda value: type(value) in UTILITIES.values(),
        lambda packer, value, where: {"class": type(value).__name__, "parameters": packer.pack(asdict(value), where)},
        _unpack_utility,
    ),
    Codec(
        "history",
        lambda value: type(value) is History,
        _pack_history,
        _unpack_history,
    ),
    Codec(
        "round",
        lambda value: type(value) is Round,
        lambda packer, value, where: _pack_history(packer, History([value]), where),
        lambda unpacker, fields, where: _unpack_history(unpacker, fields, where)[0],
    ),
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
