"""What is in a file of skops, looked at before skops sees it.

skops calls any trusted type with arguments from the file if the file says so. Here a type is let through only under the
loader that `skops.io.dumps` uses for it, boosters only if their content passes the checks of their own formats, and the
file that skops gets is written anew from the members that were checked.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma.store.checks import lightgbm_model, xgboost_model
from fivesigma.store.checks.numpy_files import read_header
from fivesigma.store.checks.refusal import UncheckedError, refuse_unless
from fivesigma.store.checks.scikit_types import OBJECTS

_SCHEMA = "schema.json"
_MEMBER = re.compile(r"[0-9a-f-]{1,40}\.(?:npy|bin)|schema\.json")
_PROTOCOL = 2
_DEEPEST = 60
_SCALARS = {f"numpy.{name}" for name in ("bool", "bool_", "float32", "float64", "int8", "int16", "int32", "int64")}
_SCALARS |= {f"numpy.{name}" for name in ("str_", "uint8", "uint16", "uint32", "uint64")}
_LOADERS: dict[str, set[str] | frozenset[str]] = {
    "ObjectNode": OBJECTS,
    "DictNode": {"builtins.dict", "collections.OrderedDict", "sklearn.utils._bunch.Bunch"},
    "DefaultDictNode": {"collections.defaultdict"},
    "ListNode": {"builtins.list"},
    "TupleNode": {"builtins.tuple"},
    "SetNode": {"builtins.set"},
    "SliceNode": {"builtins.slice"},
    "JsonNode": {"builtins.str"},
    "TypeNode": {"builtins.str", "builtins.int", "builtins.float", "builtins.bool", "collections.OrderedDict"}
    | _SCALARS,
    "NdArrayNode": {"numpy.ndarray"} | _SCALARS,
    "DTypeNode": {"numpy.dtype"},
    "TreeNode": {"sklearn.tree._tree.Tree"},
    "RandomStateNode": {"numpy.random.mtrand.RandomState"},
    "RandomGeneratorNode": {"numpy.random._generator.Generator"},
    "BytearrayNode": {"builtins.bytearray"},
}
_LOSS = re.compile(r"sklearn\._loss\._loss\.Cy\w+|sklearn\.linear_model\._sgd_fast\.\w+")
_FUNCTION = re.compile(r"(?:numpy|scipy\.special)[\w.]*\.\w+")  # of which skops trusts those that work on elements


def checked_file(content: bytes) -> bytes:
    """Check a file of skops and write it anew."""
    members = _members(content)
    try:
        schema = json.loads(members[_SCHEMA])
    except (ValueError, RecursionError):
        raise UncheckedError("its schema is not JSON") from None
    refuse_unless(
        isinstance(schema, dict) and schema.get("protocol") == _PROTOCOL and type(schema["protocol"]) is int,
        f"its protocol is not {_PROTOCOL}",
    )
    used = _Walk(members).walk_all(schema)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, part in {**used, _SCHEMA: members[_SCHEMA]}.items():
            file.writestr(name, part)
    return out.getvalue()


def _members(content: bytes) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            # Stored members cannot swell, and members that do not overlap are not more than the file.
            infos = file.infolist()
            for info in infos:
                stored = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
                refuse_unless(stored and not info.flag_bits & 1, "it is compressed, as fivesigma.save does not")
            refuse_unless(sum(info.file_size for info in infos) <= len(content), "its members are more than the file")
            for info in infos:
                name = info.filename
                refuse_unless(_MEMBER.fullmatch(name) and name not in members, f"it holds {name[:60]!r}")
                members[name] = file.read(info)
    except UncheckedError:
        raise
    except Exception as err:  # damaged zips raise many kinds
        raise UncheckedError(f"it is no whole zip file: {str(err)[:80]}") from None
    refuse_unless(_SCHEMA in members, "it has no schema")
    return members


class _Walk:
    """Looks at every node of a schema."""

    def __init__(self, members: dict[str, bytes]) -> None:
        self._members = members
        self._used: dict[str, bytes] = {}
        self._owner: dict[str, int] = {}
        self._digests: dict[int, bytes] = {}

    def walk_all(self, schema: dict[str, Any]) -> dict[str, bytes]:
        """Check the whole schema; return the members that it uses, as skops may see them."""
        self._node({k: v for k, v in schema.items() if k not in ("protocol", "_skops_version")}, 0)
        return self._used

    def _value(self, value: Any, depth: int) -> bytes:
        """Check all nodes in a part of the schema; return a digest of it."""
        if isinstance(value, dict) and "__loader__" in value:
            return self._node(value, depth + 1)
        refuse_unless(depth < _DEEPEST, f"it is nested deeper than {_DEEPEST}")
        if isinstance(value, dict):
            parts = [p for k, v in value.items() for p in (json.dumps(k).encode(), self._value(v, depth + 1))]
        elif isinstance(value, list):
            parts = [self._value(v, depth + 1) for v in value]
        else:
            return json.dumps(value).encode()
        return hashlib.sha256(b"\0".join((type(value).__name__.encode(), *parts))).digest()

    def _node(self, node: dict[str, Any], depth: int) -> bytes:
        loader, number = node.get("__loader__"), node.get("__id__", 0)
        name = f"{node.get('__module__')}.{node.get('__class__')}"
        refuse_unless(type(number) is int and number > 0, "a part of it has no number")
        allowed = _LOADERS.get(loader) if isinstance(loader, str) else None
        if allowed is not None:
            fits = name in allowed
        else:
            pattern = {"LossNode": _LOSS, "FunctionNode": _FUNCTION}.get(str(loader))
            fits = pattern is not None and pattern.fullmatch(name) is not None
        refuse_unless(fits, f"it holds {name[:100]} by {str(loader)[:40]}, which cannot be checked")
        if "file" in node:
            digest = self._file(node, name)
        else:
            digest = self._value({k: v for k, v in node.items() if k not in ("__id__", "__loader__")}, depth)
        digest = hashlib.sha256(f"{loader} {name} ".encode() + digest).digest()
        # skops takes the first of all parts with one number, so they must be alike.
        refuse_unless(self._digests.setdefault(number, digest) == digest, "two parts of it have one number")
        self._check_kind(node, str(loader), name)
        return digest

    def _file(self, node: dict[str, Any], kind: str) -> bytes:
        """Check a member; each belongs to one node, so that nothing swells."""
        name = node["file"]
        refuse_unless(isinstance(name, str) and name in self._members, "it names a file that is not in it")
        refuse_unless(self._owner.setdefault(name, node["__id__"]) == node["__id__"], "two parts of it share a file")
        content = self._members[name]
        if kind == "builtins.bytearray":
            content = _booster_again(content)
        else:
            refuse_unless(node.get("type") == "numpy", "it names a file that is no array")
            read_header(content)
        self._used[name] = content
        return hashlib.sha256(content).digest()

    def _check_kind(self, node: dict[str, Any], loader: str, name: str) -> None:
        """Check what would be followed without a look while it is made."""
        if loader == "TreeNode":
            self._check_tree(node)
        elif name == "xgboost.core.Booster":
            state = _entries(node)
            refuse_unless(set(state) == {"handle"} and _loader(state["handle"]) == "BytearrayNode", _NOT_A_BOOSTER)
        elif name == "lightgbm.basic.Booster":
            state = _entries(node)
            texts = [state[k] for k in ("handle", "_handle") if k in state]
            refuse_unless(len(texts) == 1 and isinstance(text := _plain(texts[0]), str), _NOT_A_BOOSTER)
            lightgbm_model.check_booster(text.encode(errors="replace"))
        elif loader == "RandomGeneratorNode":
            content = node.get("content")
            states = content.get("bit_generator") if isinstance(content, dict) else None
            kind = _entries({"content": states}).get("bit_generator")
            refuse_unless(_plain(kind) == "PCG64", "it holds a random generator that cannot be checked")
        elif loader == "SliceNode":
            ends = node.get("content")
            refuse_unless(
                isinstance(ends, dict) and all(v is None or type(v) is int for v in ends.values()), "a slice is none"
            )

    def _check_tree(self, node: dict[str, Any]) -> None:
        """Check the arguments with which a tree of scikit-learn is made: it has one output."""
        reduced = node.get("__reduce__")
        arguments = reduced.get("args") if isinstance(reduced, dict) else None
        items = arguments.get("content") if isinstance(arguments, dict) else None
        if not isinstance(items, list) or len(items) != 3 or _loader(arguments) != "TupleNode":
            raise UncheckedError(_NOT_A_TREE)
        n_features, n_outputs = _plain(items[0]), _plain(items[2])
        refuse_unless(type(n_features) is int and 1 <= n_features < 1 << 31, _NOT_A_TREE)
        refuse_unless(type(n_outputs) is int and n_outputs == 1, "a tree has several outputs")
        refuse_unless(_loader(items[1]) == "NdArrayNode" and "file" in items[1], _NOT_A_TREE)
        content = self._used[items[1]["file"]]
        shape, _, dtype, start = read_header(content)
        refuse_unless(shape == (1,) and dtype == np.intp, _NOT_A_TREE)
        n_classes = int(np.frombuffer(content, dtype=dtype, offset=start)[0])
        refuse_unless(1 <= n_classes <= 2, "a tree has more than two classes")


_NOT_A_BOOSTER = "it holds a booster that is not written as its library writes it"
_NOT_A_TREE = "it holds a tree that is not written as scikit-learn writes it"


def _loader(node: Any) -> Any:
    return node.get("__loader__") if isinstance(node, dict) else None


def _entries(node: Any) -> dict[str, Any]:
    """Entries of the dictionary that is the content of a node."""
    content = node.get("content") if isinstance(node, dict) else None
    if _loader(content) not in ("DictNode", None) or not isinstance(content, dict):
        return {}
    inner = content.get("content") if _loader(content) == "DictNode" else None
    return inner if isinstance(inner, dict) else {}


def _plain(node: Any) -> Any:
    """Value of a node that is written as JSON."""
    if _loader(node) != "JsonNode" or not isinstance(node.get("content"), str):
        return None
    try:
        return json.loads(node["content"])
    except (ValueError, RecursionError):
        return None


def _booster_again(content: bytes) -> bytes:
    """Check a booster of XGBoost that was pickled, and pickle it anew, without its settings."""
    model = xgboost_model.model_in_snapshot(content)
    xgboost_model.check_booster(model)
    booster = need("xgboost").Booster(model_file=bytearray(model))
    return bytes(booster.__getstate__()["handle"])
