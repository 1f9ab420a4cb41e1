"""Turning what a model consists of into JSON and files, and back, one codec a kind of value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fivesigma._tools.extras import version_of
from fivesigma.errors import StoreError

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

    def file(self, fields: Mapping[str, Any], where: str, name: str = "file") -> bytes:
        """Content of the file that a field names."""
        wanted = self.typed(fields, name, str, where)
        if wanted not in self.files:
            raise StoreError(f"{where} in the manifest names the file {wanted[:60]!r}, which is not part of the model")
        return self.files[wanted]


def one_line(err: BaseException) -> str:
    """First line of an error's message, or its type."""
    lines = str(err).strip().splitlines()
    return lines[0][:200] if lines else type(err).__name__
