"""How a model of an earlier format becomes one of the present format.

Each format number has the named changes that lead to it from the number before, in order. A change works on the plain
JSON of the manifest, before any value is made. CONTRIBUTING.md says when a change needs a new number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fivesigma.store.packing import TAG

Node = dict[str, Any]
Change = Callable[[Node], None]

FORMAT = 2


def migrate(model: Node, number: int) -> None:
    """Bring the model of a manifest of format `number` to the present format, in place."""
    for step in range(number + 1, FORMAT + 1):
        for change in CHANGES[step]:
            change(model)


def find_tagged(node: Any, tag: str) -> Iterator[Node]:
    """Every value of one kind in a manifest, the innermost first."""
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in list(children):
        yield from find_tagged(child, tag)
    if isinstance(node, dict) and node.get(TAG) == tag:
        yield node


def estimators(model: Node, *names: str) -> Iterator[Node]:
    """Every estimator of the given classes in a manifest, of all classes if none is given."""
    return (node for node in find_tagged(model, "estimator") if not names or node.get("class") in names)


def drop(node: Node, part: str, name: str) -> None:
    """Remove a parameter or a fitted attribute, if it is there."""
    if isinstance(node.get(part), dict):
        node[part].pop(name, None)


def rounds_say_valid(model: Node) -> None:
    """`Round.counts` became `Round.valid`."""
    for node in find_tagged(model, "round"):
        if "counts" in node:
            node["valid"] = node.pop("counts")


def rounds_become_tables(model: Node) -> None:
    """A record for each round became one table of all rounds."""
    for node in find_tagged(model, "history"):
        rounds = node.pop("rounds", None)
        if isinstance(rounds, list) and all(isinstance(r, dict) for r in rounds):
            node.update(_table([r for r in rounds if isinstance(r, dict)]))
    for node in find_tagged(model, "round"):
        record = dict(node)
        node.clear()
        node.update({TAG: "round", **_table([record])})


def _table(rounds: list[Node]) -> Node:
    flat = [_flat(r) for r in rounds]
    columns = list(flat[0]) if flat else []
    values = [_number(r.get(name)) for name in columns for r in flat]
    table = {TAG: "array", "dtype": "<f8", "shape": [len(columns), len(flat)], "data": values}
    return {"columns": columns, "table": table}


def _flat(record: Node) -> Node:
    parts = {"class_weights": ("signal", "background"), "following": ("signal", "background", "u")}
    out: Node = {}
    for name, value in record.items():
        if name in parts and isinstance(value, list):
            out |= {f"{name}.{part}": v for part, v in zip(parts[name], value, strict=False)}
        elif name != TAG:
            out[name] = value
    return out


def _number(value: Any) -> Any:
    return {TAG: "number", "value": "nan"} if value is None else float(value) if isinstance(value, bool) else value


def pools_derive_their_history(model: Node) -> None:
    """The rounds of a pool are those of its members."""
    for node in estimators(model, "CascadePool"):
        drop(node, "fitted", "history_")


def splits_leave_the_members(model: Node) -> None:
    """The rows of a pool's splits were a parameter of each of its members."""
    for node in estimators(model, "CascadePool"):
        fitted = node.get("fitted")
        for member in estimators(fitted.get("members_") if isinstance(fitted, dict) else []):  # type: ignore[arg-type]  # JSON
            drop(member, "parameters", "cv")


def plain_cascades_say_so(model: Node) -> None:
    """The plain model of a `CascadeClassifier` was asked for by max_rounds=0."""
    for node in estimators(model, "CascadeClassifier"):
        parameters = node.get("parameters")
        if isinstance(parameters, dict) and parameters.get("max_rounds") == 0:
            del parameters["max_rounds"]
            parameters["cascade"] = False


CHANGES: dict[int, tuple[Change, ...]] = {
    2: (
        rounds_say_valid,
        rounds_become_tables,
        pools_derive_their_history,
        splits_leave_the_members,
        plain_cascades_say_so,
    ),
}
