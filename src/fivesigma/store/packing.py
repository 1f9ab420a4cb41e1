"""Turning what a model consists of into JSON and files, and back, one codec a kind of value; codecs of plain values.

A small array stands in the manifest, a larger one in a file of its own in NumPy's format, without pickle.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from fivesigma._tools.extras import version_of
from fivesigma.cascade.rounds import History, Round
from fivesigma.errors import StoreError
from fivesigma.significance import UTILITIES

TAG = "$"  # the key that marks a JSON object as something else than a dictionary


@dataclass(frozen=True)
class Codec:
    """How one kind of value is stored."""

    tag: str  # name of the kind in the manifest
    takes: Callable[[Any], bool]
    pack: Callable[[Packer, Any, str], dict[str, Any] | None]  # None leaves the value to the next codec
    unpack: Callable[[Unpacker, dict[str, Any], str], Any]  # any exception means that the fields are wrong
    library: str = ""  # module that reads the value: its version is named if it cannot


@dataclass
class Packer:
    """Collects the files of a model while its values become JSON."""

    codecs: Sequence[Codec]
    allow_pickle: bool = False
    files: dict[str, bytes] = field(default_factory=dict)

    def add_file(self, content: bytes, ending: str) -> str:
        """Keep a file and return its name."""
        name = f"part-{len(self.files):03d}{ending}"
        self.files[name] = content
        return name

    def pack(self, value: Any, where: str) -> Any:
        """Turn a value into JSON; `where` is its place, for errors."""
        if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
            return value
        if type(value) is list:
            return [self.pack(item, f"{where}[{i}]") for i, item in enumerate(value)]
        if type(value) is dict and all(type(key) is str and key != TAG for key in value):
            return {key: self.pack(item, f"{where}.{key}") for key, item in value.items()}
        for codec in self.codecs:
            if codec.takes(value) and (fields := codec.pack(self, value, where)) is not None:
                return {TAG: codec.tag, **fields}
        raise StoreError(
            f"{where} is a {type(value).__name__}, and no format stores it that can be loaded without running code; "
            "pass allow_pickle=True to save and load if whoever loads it trusts you"
        )


@dataclass(frozen=True)
class Unpacker:
    """Makes values of JSON and the files of a model."""

    codecs: Mapping[str, Codec]
    files: Mapping[str, bytes]
    allow_pickle: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)

    def unpack(self, value: Any, where: str) -> Any:
        """Make the value; whatever does not fit is refused with its place."""
        if isinstance(value, list):
            return [self.unpack(item, f"{where}[{i}]") for i, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if TAG not in value:
            return {key: self.unpack(item, f"{where}.{key}") for key, item in value.items()}
        tag = value[TAG]
        codec = self.codecs.get(tag) if isinstance(tag, str) else None
        if codec is None:
            raise StoreError(f"{where} in the manifest is of the unknown kind {str(tag)[:40]!r}")
        fields = {key: item for key, item in value.items() if key != TAG}
        try:
            return codec.unpack(self, fields, where)
        except (StoreError, ModuleNotFoundError):
            raise
        except Exception as err:  # parsers of other libraries raise what they like
            raise StoreError(self._why_not(codec, where, err)) from err

    def _why_not(self, codec: Codec, where: str, err: Exception) -> str:
        """Say why a value could not be made; another version of its library is the likeliest reason."""
        then, now = self.versions.get(codec.library), version_of(codec.library)
        if then is not None and now is not None and then != now:
            return (
                f"{where} was written by {codec.library} {then}, and {codec.library} {now} cannot read it "
                f"({one_line(err)}); install {codec.library} {then} or train the model again"
            )
        return f"{where} in the manifest cannot be made a {codec.tag}: {one_line(err)}"

    def typed(self, fields: Mapping[str, Any], name: str, kind: type | tuple[type, ...], where: str) -> Any:
        """Make one field's value and check its type."""
        if name not in fields:
            raise StoreError(f"{where}.{name} is missing in the manifest")
        value = self.unpack(fields[name], f"{where}.{name}")
        accepted = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
            wanted = " or ".join(k.__name__ for k in accepted)
            raise StoreError(f"{where}.{name} in the manifest should be a {wanted}, not a {type(value).__name__}")
        return value

    def named(self, fields: Mapping[str, Any], known: Mapping[str, Any], where: str) -> Any:
        """What the field "class" names; no other class is ever made."""
        name = self.typed(fields, "class", str, where)
        if name not in known:
            raise StoreError(f"{where} in the manifest is a {name[:40]!r}; known are {', '.join(known)}")
        return known[name]

    def file(self, fields: Mapping[str, Any], where: str) -> bytes:
        """Content of the file that a field names."""
        wanted = self.typed(fields, "file", str, where)
        if wanted not in self.files:
            raise StoreError(f"{where} in the manifest names the file {wanted[:60]!r}, which is not part of the model")
        if not self.files[wanted]:  # at an empty booster XGBoost ends the process
            raise StoreError(f"{where} names an empty file")
        return self.files[wanted]


def one_line(err: BaseException) -> str:
    """First line of an error's message, or its type."""
    lines = str(err).strip().splitlines()
    return lines[0][:200] if lines else type(err).__name__


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
    kind = unpacker.named(fields, {kind.__name__: kind for kind in UTILITIES.values()}, where)
    return kind(**unpacker.typed(fields, "parameters", dict, where))


def _pack_history(packer: Packer, value: History, where: str) -> dict[str, Any]:
    columns = value.to_columns()
    table = np.array(list(columns.values()), dtype=np.float64).reshape(len(columns), len(value))  # None becomes NaN
    return {"columns": list(columns), "table": packer.pack(table, where)}


def _unpack_history(unpacker: Unpacker, fields: dict[str, Any], where: str) -> History:
    names = unpacker.typed(fields, "columns", list, where)
    table = unpacker.typed(fields, "table", np.ndarray, where)
    return History.from_columns(dict(zip(names, table.tolist(), strict=True)))


def _unpack_random_state(unpacker: Unpacker, fields: dict[str, Any], where: str) -> np.random.RandomState:
    given = unpacker.typed(fields, "state", tuple, where)
    if len(given) != 5 or given[0] != "MT19937" or type(given[2]) is not int or not 0 <= given[2] <= 624:
        raise StoreError(f"{where}.state in the manifest is not the state of a random generator")
    state = np.random.RandomState()
    state.set_state(given)
    return state


PLAIN_CODECS = (
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
    Codec("history", lambda value: type(value) is History, _pack_history, _unpack_history),
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
