"""Edits of the files of a saved model that know their formats, so that what comes out is nearly right."""

from __future__ import annotations

import io
import json
import random
import re
import struct
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

Json = Any
Edit = Callable[[random.Random, bytes], bytes]

NUMBERS = (-(1 << 31), -2, -1, 0, 1, 2, 3, 7, 127, 624, 1000, 65535, 1_000_000, (1 << 31) - 1)
FLOATS = (float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 1e38, 1e-40)
STRANGE: tuple[Json, ...] = (
    *(None, True, False, 0, -1, 1 << 70, 0.5, 1e308, "", "nan", "part-000.ubj", "../x", "\ud800", [], [[]], {}),
    *({"$": "tuple"}, {"$": "number", "value": "inf"}, {"$": []}, {"": {}}, [None] * 50),
    {"$": "array", "dtype": "<f8", "shape": [0], "data": []},
)


def places(value: Json) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found.append((value, key))
        found.extend(places(item))
    return found


def damage_value(rng: random.Random, root: Json) -> None:
    """Put something strange at a random place, or take the place away, or move its content elsewhere."""
    container, key = rng.choice(places(root))
    what = rng.randrange(6)
    old = container[key]
    if what == 0:
        del container[key]
    elif what == 1 and isinstance(container, dict):
        container[rng.choice(("$", "extra_", "__class__", "file", "__id__", "n_jobs"))] = container.pop(key)
    elif what == 2:
        other, other_key = rng.choice(places(root))
        container[key] = json.loads(json.dumps(other[other_key]))
    elif what == 3 and isinstance(old, int | float):
        container[key] = rng.choice((*NUMBERS, *FLOATS[3:], old + 1, -old))
    elif what == 4 and isinstance(old, list) and old:
        container[key] = old * rng.choice((0, 2, 3))
    else:
        container[key] = json.loads(json.dumps(rng.choice(STRANGE)))


def bytes_anywhere(rng: random.Random, content: bytes) -> bytes:
    """Change some bytes, cut some out, or write some twice."""
    if not content:
        return b"\0"
    at, n = rng.randrange(len(content)), rng.choice((1, 1, 2, 4, 8, 50))
    what = rng.randrange(5)
    if what == 0:
        return content[:at]
    if what == 1:
        return content[:at] + content[at + n :]
    if what == 2:
        return content[:at] + content[at : at + n] + content[at:]
    return content[:at] + rng.randbytes(n) + content[at + n :]


# UBJSON, of its own making: the reader that is tested is not used here.
_CODES = {"i": "b", "U": "B", "I": "h", "l": "i", "L": "q", "d": "f", "D": "d"}


def _decode(text: bytes, at: int) -> tuple[Any, int]:
    marker = chr(text[at])
    at += 1
    if marker == "{":
        pairs = []
        while text[at] != ord("}"):
            n = struct.unpack_from(">q", text, at + 1)[0]
            key = text[at + 9 : at + 9 + n]
            value, at = _decode(text, at + 9 + n)
            pairs.append([key, value])
        return ["{", pairs], at + 1
    if marker == "[":
        kind = ""
        if text[at] == ord("$"):
            kind, at = chr(text[at + 1]), at + 2
        n = struct.unpack_from(">q", text, at + 2)[0]
        at += 10
        if kind:
            size = struct.calcsize(">" + _CODES[kind])
            items = list(struct.unpack_from(f">{n}{_CODES[kind]}", text, at))
            return ["$", kind, items], at + n * size
        found = []
        for _ in range(n):
            item, at = _decode(text, at)
            found.append(item)
        return ["[", found], at
    if marker == "S":
        n = struct.unpack_from(">q", text, at + 1)[0]
        return ["S", text[at + 9 : at + 9 + n]], at + 9 + n
    if marker in "TFZ":
        return [marker, None], at
    size = struct.calcsize(">" + _CODES[marker])
    return [marker, struct.unpack_from(">" + _CODES[marker], text, at)[0]], at + size


def _number(code: str, value: Any) -> bytes:
    try:
        return struct.pack(">" + _CODES[code], value)
    except (struct.error, OverflowError, ValueError):
        return b"\x7f" * struct.calcsize(">" + _CODES[code])


def _length(n: int) -> bytes:
    return b"L" + struct.pack(">q", n)


def _encode(node: Any) -> bytes:
    kind = node[0]
    if kind == "{":
        return b"{" + b"".join(_length(len(k)) + k + _encode(v) for k, v in node[1]) + b"}"
    if kind == "[":
        return b"[#" + _length(len(node[1])) + b"".join(map(_encode, node[1]))
    if kind == "$":
        items = b"".join(_number(node[1], v) for v in node[2])
        return b"[$" + bytes(node[1], "ascii") + b"#" + _length(len(node[2])) + items
    if kind == "S":
        return b"S" + _length(len(node[1])) + bytes(node[1])
    if kind in "TFZ":
        return bytes(kind, "ascii")
    return bytes(kind, "ascii") + _number(kind, node[1])


def _nodes(node: Any) -> list[Any]:
    children = [v for _, v in node[1]] if node[0] == "{" else node[1] if node[0] == "[" else []
    return [node, *(n for child in children for n in _nodes(child))]


def edit_ubjson(rng: random.Random, content: bytes) -> bytes:
    """Change numbers, arrays, strings and keys of a booster of XGBoost."""
    if rng.random() < 0.1:
        return bytes_anywhere(rng, content)
    root, _ = _decode(content, 0)
    nodes = _nodes(root)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        arrays = [n for n in nodes if n[0] == "$"]
        node = rng.choice(arrays) if arrays and rng.random() < 0.6 else rng.choice(nodes)
        if node[0] == "$":
            what = rng.randrange(8)
            if what == 0:
                node[2] = node[2][:-1]
            elif what == 1:
                node[2] = [*node[2], rng.choice(NUMBERS)]
            elif what == 2:
                node[1] = rng.choice("iUlLd")
            elif node[2]:
                k = rng.randrange(len(node[2]))
                values = (*NUMBERS, *FLOATS) if node[1] in "dD" else (*NUMBERS, k, k - 1, k + 1, len(node[2]), 0)
                node[2][k] = rng.choice(values)
        elif node[0] == "{" and node[1]:
            what, k = rng.randrange(4), rng.randrange(len(node[1]))
            if what == 0:
                del node[1][k]
            elif what == 1:
                node[1].append(node[1][k])
            elif what == 2:
                node[1][k][0] = rng.choice((b"", b"trees", b"name", node[1][k][0] + b"x"))
            else:
                node[1][k][1] = rng.choice(nodes[:50])
        elif node[0] == "[":
            node[1] = rng.choice((node[1][:-1], node[1] * 2, node[1][::-1], []))
        elif node[0] == "S":
            texts = (
                b"",
                b"-1",
                b"0",
                b"1",
                b"2",
                b"999999999",
                b"99999999999999999999",
                b"nan",
                b"1e999",
                b"[5E-1,1E0]",
            )
            node[1] = rng.choice((*texts, b"dart", b"gblinear", b"multi:softmax", b"rank:ndcg", b"x" * 5000))
        else:
            node[1] = rng.choice(NUMBERS)
    try:
        return _encode(root)
    except RecursionError:
        return bytes_anywhere(rng, content)


def edit_text(rng: random.Random, content: bytes) -> bytes:
    """Change numbers and lines of a booster of LightGBM; half of the time its tree_sizes are made right again."""
    if rng.random() < 0.1:
        return bytes_anywhere(rng, content)
    lines = content.split(b"\n")
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        end = next((k for k, line in enumerate(lines) if line == b"end of trees"), len(lines))
        k = rng.randrange(end) if rng.random() < 0.8 else rng.randrange(len(lines))
        what = rng.randrange(10)
        if what == 0:
            del lines[k]
        elif what == 1:
            lines.insert(k, lines[rng.randrange(len(lines))])
        elif what == 2:
            lines[k] = lines[k].replace(b"=", rng.choice((b"=1 ", b"= ", b"==", b"")), 1)
        else:
            key, mark, rest = lines[k].partition(b"=")
            tokens = rest.split(b" ")
            at = rng.randrange(len(tokens))
            values = (b"-1", b"0", b"1", b"2", b"1000000", b"-1000000", b"2147483647", b"99999999999", b"nan", b"inf")
            tokens[at] = rng.choice((*values, b"1e400", b"x", b"", b"e", b"1.5", b"4", b"12", b"1 1", b"--1", b"\xff"))
            if what == 3:
                del tokens[at]
            lines[k] = key + mark + b" ".join(tokens)
    out = b"\n".join(lines)
    if rng.random() < 0.5 and b"\nTree=0\n" in out and b"end of trees" in out:
        head, _, rest = out.partition(b"\nTree=0\n")
        trees, end_mark, tail = (b"Tree=0\n" + rest).partition(b"end of trees")
        starts = [0]
        while (at := trees.find(b"\nTree=", starts[-1] + 1)) >= 0:
            starts.append(at + 1)
        sizes = b" ".join(str(b - a).encode() for a, b in zip(starts, [*starts[1:], len(trees)], strict=True))
        before, _, _ = head.partition(b"tree_sizes=")
        out = before + b"tree_sizes=" + sizes + b"\n\n" + trees + end_mark + tail
    return out


def edit_npy(rng: random.Random, content: bytes) -> bytes:
    """Change the numbers or the header of an array."""
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False).copy()
    except ValueError:
        return bytes_anywhere(rng, content)
    what = rng.randrange(10)
    if what == 0:
        return bytes_anywhere(rng, content)
    if what == 1:
        shapes = (b"(1000000000000,)", b"(-1,)", b"(0, 99999)", b"()", b"(2,)", b"(1, 2, 3)")
        old = content[content.index(b"'shape': ") + 9 : content.index(b"}")]
        return content.replace(old, (rng.choice(shapes) + b", ").ljust(len(old))[: len(old)], 1)
    if what == 2:
        kinds = (b"'|O'", b"'<U0'", b"'<U9999'", b"'<i8'", b"'<f4'", b"'|V0'", b"'<c16'", b"'<M8[s]'")
        at = content.index(b"'descr': ") + 9
        stop = content.index(b", 'fortran")
        new = rng.choice(kinds)
        return content[:at] + new + content[stop : stop + 100].replace(b"", b"", 1) + content[stop + 100 :]
    if what == 3:
        array = rng.choice((array[:-1] if array.ndim else array, np.repeat(array.ravel(), 2), array.ravel()[:0]))
    elif array.size:
        flat = array.reshape(-1)
        for _ in range(rng.choice((1, 1, 3))):
            k = rng.randrange(flat.size)
            try:
                if flat.dtype.names:
                    flat[rng.choice(flat.dtype.names)][k] = rng.choice((*NUMBERS, k, k + 1, k - 1))
                elif flat.dtype.kind == "f":
                    flat[k] = rng.choice((*NUMBERS, *FLOATS))
                else:
                    flat[k] = rng.choice((*NUMBERS, "s", "b"))
            except (OverflowError, ValueError):
                flat[k] = flat[0]
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def edit_skops(rng: random.Random, content: bytes) -> bytes:
    """Change the schema of a file of skops, its arrays, or the zip itself."""
    if rng.random() < 0.05:
        return bytes_anywhere(rng, content)
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    schema = json.loads(members["schema.json"])
    for _ in range(rng.choice((1, 1, 2, 4))):
        if rng.random() < 0.4 and len(members) > 1:
            name = rng.choice([n for n in members if n != "schema.json"])
            members[name] = edited(edit_npy if name.endswith(".npy") else edit_ubjson, rng, members[name])
        else:
            _edit_schema(rng, schema, members)
    members["schema.json"] = json.dumps(schema).encode()
    out = io.BytesIO()
    compression = zipfile.ZIP_DEFLATED if rng.random() < 0.03 else zipfile.ZIP_STORED
    with zipfile.ZipFile(out, "w", compression) as file:
        for name, part in members.items():
            file.writestr(rng.choice((name, name, name, "../" + name)) if rng.random() < 0.02 else name, part)
    return out.getvalue()


def _edit_schema(rng: random.Random, schema: Json, members: dict[str, bytes]) -> None:
    nodes = [schema, *(c[k] for c, k in places(schema) if isinstance(c[k], dict) and "__loader__" in c[k])]
    node, other = rng.choice(nodes), rng.choice(nodes)
    what = rng.randrange(9)
    if what == 0:
        node["__loader__"] = rng.choice(
            (
                "ConstructorFromReduceNode",
                "ReduceNode",
                "LossNode",
                "PartialNode",
                "MethodNode",
                "CachedNode",
                "TypeNode",
            )
        )
    elif what == 1:
        node["__module__"], node["__class__"] = other.get("__module__"), other.get("__class__")
    elif what == 2:
        node["__id__"] = other.get("__id__")
    elif what == 3:
        for key in [k for k in node if k not in ("protocol", "_skops_version")]:
            del node[key]
        node.update(json.loads(json.dumps({k: v for k, v in other.items() if k not in ("protocol", "_skops_version")})))
    elif what <= 6 and isinstance(node.get("content"), str):
        texts = [str(n) for n in NUMBERS]
        node["content"] = rng.choice(
            (*texts, "NaN", "null", "true", '"x"', "[]", "{}", "1e999", "1.5", '"predict"', "x")
        )
        node["__id__"] = rng.randrange(1, 1 << 40)
    elif what == 7 and "file" in node:
        node["file"] = rng.choice([*members, "../x", "/etc/passwd"])
    else:
        damage_value(rng, schema)


def edit_safetensors(rng: random.Random, content: bytes) -> bytes:
    """Change the header or the numbers of a net."""
    what = rng.randrange(4)
    n = int.from_bytes(content[:8], "little")
    if what == 0:
        return bytes_anywhere(rng, content)
    if what == 1:
        header = json.loads(content[8 : 8 + n])
        damage_value(rng, header)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + content[8 + n :]
    at = 8 + n + 4 * rng.randrange(max((len(content) - 8 - n) // 4, 1))
    value = struct.pack("<f", rng.choice(FLOATS)) if what == 2 else struct.pack("<i", rng.choice(NUMBERS))
    return content[:at] + value + content[at + 4 :]


_DIRECTORY, _LOCAL, _END = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"


def edit_zip(rng: random.Random, content: bytes) -> bytes:
    """Change a zip: bytes, fields of its headers, names, members that are there twice, compressed or overlapping."""
    what = rng.randrange(6)
    if what == 0:
        return bytes_anywhere(rng, content)
    if what <= 2:
        out = bytearray(content)
        for _ in range(rng.choice((1, 1, 2))):
            mark, length = rng.choice(((_DIRECTORY, 46), (_LOCAL, 30), (_END, 22)))
            starts = [m.start() for m in re.finditer(re.escape(mark), content)]
            at = rng.choice(starts) + rng.randrange(4, length - 1)
            code = rng.choice("BHI")
            value = rng.choice((*NUMBERS, len(content), 8, 99, 0xFFFF, 0xFFFFFFFF)) & (256 ** struct.calcsize(code) - 1)
            out[at : at + struct.calcsize(code)] = struct.pack("<" + code, value)
        return bytes(out)
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        members = [(name, file.read(name)) for name in file.namelist()]
    k = rng.randrange(len(members))
    name, part = members[k]
    if what == 3:
        names = (
            "../" + name,
            "/" + name,
            name.upper(),
            "x/" + name,
            "",
            "a" * 300,
            "manifest.json",
            "\0",
            name + "\0x",
        )
        members[k] = (rng.choice(names), part)
    elif what == 4:
        members.insert(rng.randrange(len(members) + 1), rng.choice(((name, b""), ("extra.txt", b"x"), ("dir/", b""))))
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w") as file:
        warnings.simplefilter("ignore")  # of names that are there twice
        for each, text in members:
            info = zipfile.ZipInfo(each or "-")
            info.filename = each
            info.external_attr = rng.choice((0, 0, 0o120777 << 16, 0o10777 << 16))  # as links and pipes have
            info.compress_type = rng.choice((0, 8, 12, 14)) if what == 5 and rng.random() < 0.5 else 0
            file.writestr(info, text)
    return stream.getvalue()


def edited(edit: Edit, rng: random.Random, content: bytes) -> bytes:
    """Edit content, or only its bytes if it is too damaged already."""
    try:
        return edit(rng, content)
    except Exception:
        return bytes_anywhere(rng, content)


EDITS: dict[str, Edit] = {
    ".ubj": edit_ubjson,
    ".txt": edit_text,
    ".npy": edit_npy,
    ".skops": edit_skops,
    ".safetensors": edit_safetensors,
}
