"""YAML as data: nothing of it runs, no key stands twice, and a small file stays small."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

from fivesigma._tools.extras import need
from fivesigma._tools.files import read_text
from fivesigma.errors import InputError, shortened

__all__ = ["check_plain", "read_yaml"]

_MOST_BYTES = 1_000_000
_MOST_ITEMS = 100_000  # aliases unfolded
_MOST_LEVELS = 50
_MOST_MERGED = 1_000  # keys of one mapping after `<<`
_TAG = "tag:yaml.org,2002:"
_TAGS = frozenset(f"{_TAG}{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map", "merge"))


def read_yaml(path: Path) -> Any:
    """Read a YAML file of mappings, lists, text, numbers and truths."""
    yaml = need("yaml")
    try:
        text = read_text(path, _MOST_BYTES)
    except (OSError, UnicodeDecodeError) as err:
        raise InputError(f"{path} cannot be read: {getattr(err, 'strerror', None) or err}") from err
    loader = _loader()(text)
    try:
        _check_depth(text)
        node = loader.get_single_node()
        _check_nodes(node)
        content = None if node is None else loader.construct_document(node)
        check_plain(content)
    except yaml.YAMLError as err:
        raise InputError(f"{path} is not YAML: {shortened(' '.join(str(err).split()), 300)}") from err
    except RecursionError as err:  # of merged mappings that contain each other
        raise InputError(f"{path} is not a configuration: it is nested too deeply") from err
    except InputError as err:
        raise InputError(f"{path} is not a configuration: {err}") from err
    except ValueError as err:  # of a number with thousands of digits
        raise InputError(f"{path} is not a configuration: {shortened(str(err), 200)}") from err
    finally:
        loader.dispose()
    return content


def _check_depth(text: str) -> None:
    """Refuse text that is nested so deeply that libyaml would end the process."""
    yaml = need("yaml")
    depth = 0
    for event in yaml.parse(text, Loader=_loader()):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MOST_LEVELS:
            raise InputError("it is nested too deeply")


def check_plain(content: Any) -> None:
    """Refuse what is neither a mapping, a list, text, a finite number nor a truth, and more than any analysis has."""
    waiting, n_items = [content], 0
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            odd = [key for key in item if not isinstance(key, str)]
            if odd:
                raise InputError(f"the key {shortened(repr(odd[0]))} is not text; put it in quotes")
            inside = list(item.values())
        elif isinstance(item, list):
            inside = item
        elif isinstance(item, bool | str) or item is None:
            continue
        elif not isinstance(item, int | float):
            raise InputError(f"{shortened(repr(item))} is neither text nor a number; put it in quotes")
        elif isinstance(item, int) and item.bit_length() > 64:
            raise InputError("a whole number has more than 64 bits, which is too large")
        elif not math.isfinite(item):
            raise InputError(f"the number {item} is not finite")
        else:
            continue
        n_items += len(inside)
        if n_items > _MOST_ITEMS:
            raise InputError(f"with its aliases it has more than {_MOST_ITEMS:,} items")
        waiting.extend(inside)


@cache
def _loader() -> Any:
    """PyYAML's loader without dates, and without numbers to the base of 60, which take quadratic time."""
    yaml = need("yaml")
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]  # a base that is known at run time
        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            if len(node.value) > _MOST_MERGED:
                raise InputError(f"a mapping has more than {_MOST_MERGED:,} keys")

        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            found = super().resolve(kind, value, implicit)
            dropped = found == f"{_TAG}timestamp" or (found in (f"{_TAG}int", f"{_TAG}float") and ":" in value)
            return f"{_TAG}str" if dropped and kind is yaml.ScalarNode else found

    return Loader


def _check_nodes(root: Any) -> None:
    """Refuse tags of other kinds, and keys that stand twice."""
    waiting, seen = [root] if root is not None else [], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.tag not in _TAGS:
            raise InputError(f"line {node.start_mark.line + 1} has the tag {shortened(node.tag)!r}; leave it out")
        if not isinstance(node.value, list):
            continue
        if node.tag != f"{_TAG}map":
            waiting.extend(node.value)
            continue
        keys: dict[str, int] = {}
        for key, value in node.value:
            waiting += [key, value]
            if not isinstance(key.value, str):
                raise InputError(f"line {key.start_mark.line + 1} has a key that is not text")
            line = key.start_mark.line + 1
            if key.value in keys:
                twice = f"the key {shortened(repr(key.value))} stands twice"
                raise InputError(f"{twice}, in lines {keys[key.value]} and {line}; join them")
            keys[key.value] = line
