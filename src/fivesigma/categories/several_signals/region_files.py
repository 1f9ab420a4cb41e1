"""Saved categories: one JSON file, without any code in it, that appears whole or not at all."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

import fivesigma
from fivesigma import significance
from fivesigma._tools.files import check_digest, read_text, written_with_digest
from fivesigma._types import Array
from fivesigma.categories.floors import Floors
from fivesigma.categories.ratios.calibration import Ratios
from fivesigma.categories.ratios.class_sample import Roles
from fivesigma.categories.several_signals.goal import Goal, Settings
from fivesigma.categories.several_signals.region_result import Bound, Judged, ScoreCategories
from fivesigma.categories.several_signals.region_rules import ArgmaxRule, LinearRule, Rule
from fivesigma.errors import StoreError, shortened
from fivesigma.significance import FDivergence
from fivesigma.yields.processes import ProcessYields

KIND, FORMAT = "fivesigma score categories", 1


def write(record: ScoreCategories, path: Path) -> Path:
    """Write a record and its path."""
    goal = record.settings.goal
    if callable(goal.kind) or isinstance(goal.utility, FDivergence):
        raise StoreError("categories whose goal or utility is a function cannot be saved; a file holds no code")
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent} to write {path.name} to")
    text = json.dumps(_content(record), allow_nan=False, indent=1) + "\n"
    with written_with_digest(path) as beside:
        beside.write_text(text, encoding="utf-8")
    return path


def _content(record: ScoreCategories) -> dict[str, Any]:
    return {
        "kind": KIND,
        "format": FORMAT,
        "fivesigma": fivesigma.__version__,
        "settings": _settings_to(record.settings),
        "records": [_record_to(each) for each in (*record.path, record)],
    }


def read(path: Path) -> ScoreCategories:
    """Read a record and its path; what `write` would not have written is refused."""
    if path.exists() and not path.is_file():
        raise StoreError(f"{path} is not a file")
    check_digest(path)
    try:
        content = json.loads(read_text(path))
    except OSError as err:
        raise StoreError(f"{path} cannot be read: {err.strerror}") from err
    except (ValueError, RecursionError) as err:
        raise StoreError(f"{path} is not JSON; it is damaged or of another kind") from err
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise StoreError(f"{path} does not hold saved categories of scores")
    if content.get("format") != FORMAT:
        raise StoreError(f"{path} has format {shortened(repr(content.get('format')))}; this version reads {FORMAT}")
    try:
        settings = _settings_from(content["settings"])
        records = [_record_from(each, settings) for each in content["records"]]
        last = records[-1]
        object.__setattr__(last, "path", tuple(records[:-1]))
        again = json.loads(json.dumps(_content(last), allow_nan=False)) | {"fivesigma": content["fivesigma"]}
        fits = again == content and all(map(_fits, records))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as err:
        raise StoreError(f"{path} is damaged: {type(err).__name__} at {shortened(str(err), 100)}") from err
    if not fits:
        raise StoreError(f"{path} is damaged: its content is not what is saved of categories")
    return last


def _fits(record: ScoreCategories) -> bool:
    """Whether the parts of a record fit each other, and events can be put into its categories."""
    n, roles = len(record.region_rule), record.settings.roles
    sums = [column for row in record.by_process.values() for column in row[1:]]
    if not all(column.shape == (n,) for column in (*sums, record.effective_b, record.b)):
        return False
    if set(record.s) != set(roles.signals) or set(record.z) != set(roles.signals):
        return False
    category = record.assign(np.full((1, len(roles.columns)), 1 / len(roles.columns)))
    return bool(repr(record)) and -1 <= category[0] < n


def _settings_to(settings: Settings) -> dict[str, Any]:
    goal = settings.goal
    return {
        "roles": asdict(settings.roles),
        "goal": goal.kind,
        "others": goal.others,
        "utility": {"name": type(goal.utility).__name__, **asdict(goal.utility)},  # type: ignore[call-overload]  # all are dataclasses
        "floors": asdict(settings.floors),
        "n_categories": settings.n_categories,
        "discard": settings.discard,
        "prior": None if settings.prior is None else np.asarray(settings.prior).tolist(),
        "calibrate": settings.calibrate,
    }


def _settings_from(given: dict[str, Any]) -> Settings:
    utility = dict(given["utility"])
    name = utility.pop("name")
    kind = getattr(significance, name) if name in significance.__all__ else None
    if not isinstance(kind, type) or not issubclass(kind, significance.Utility):
        raise StoreError(f"no utility is called {shortened(repr(name))}")
    roles = Roles(
        tuple(given["roles"]["columns"]),
        tuple(given["roles"]["signals"]),
        None if given["roles"]["floor"] is None else tuple(given["roles"]["floor"]),
    )
    return Settings(
        roles,
        Goal(given["goal"], given["others"], kind(**utility)),
        Floors(**given["floors"]),
        int(given["n_categories"]),
        bool(given["discard"]),
        None if given["prior"] is None else np.array(given["prior"], dtype=np.float64),
        bool(given["calibrate"]),
    )


def _record_to(record: ScoreCategories) -> dict[str, Any]:
    return {
        "rule": _rule_to(record.region_rule),
        "by_process": {
            name: [row.signal, row.sum_of_weights.tolist(), row.sum_of_squares.tolist(), row.events.tolist()]
            for name, row in record.by_process.items()
        },
        "effective_b": record.effective_b.tolist(),
        "z": dict(record.z),
        "value": record.value,
        "bound": [record.bound.value, dict(record.bound.z), record.bound.any_number, record.bound.meaning],
        "judged": list(record.judged),
        "held_out": record.held_out,
        "notes": list(record.notes),
    }


def _record_from(given: dict[str, Any], settings: Settings) -> ScoreCategories:
    rows = {
        name: ProcessYields(bool(signal), np.array(first), np.array(second), np.array(events, dtype=np.intp))
        for name, (signal, first, second, events) in given["by_process"].items()
    }
    return ScoreCategories(
        {name: row.sum_of_weights for name, row in rows.items() if row.signal},
        np.sum([row.sum_of_weights for row in rows.values() if not row.signal], axis=0),
        np.array(given["effective_b"]),
        given["z"],
        float(given["value"]),
        rows,
        Bound(*given["bound"]),
        Judged(*given["judged"]),
        (),
        bool(given["held_out"]),
        tuple(given["notes"]),
        _rule_from(given["rule"]),
        settings,
    )


def _rule_to(rule: Rule) -> dict[str, Any]:
    if isinstance(rule, LinearRule):
        ratios = {each.name: getattr(rule.ratios, each.name).tolist() for each in fields(Ratios)}
        return {"way": rule.name, "ratios": ratios, "rows": rule.rows.tolist(), "discard": rule.discard}
    edges = [[None if edge == -np.inf else edge for edge in own.tolist()] for own in rule.edges]
    return {
        "way": rule.name,
        "signals": rule.signals.tolist(),
        "prior": rule.prior.tolist(),
        "edges": edges,
        "rest": rule.rest,
    }


def _rule_from(given: dict[str, Any]) -> Rule:
    if given["way"] == LinearRule.name:
        whole = ("signals", "backgrounds")
        ratios = Ratios(
            **{name: np.array(values, np.intp if name in whole else float) for name, values in given["ratios"].items()}
        )
        return LinearRule(ratios, np.array(given["rows"], dtype=np.float64), bool(given["discard"]))
    edges = tuple(_edges(own) for own in given["edges"])
    return ArgmaxRule(np.array(given["signals"], dtype=np.intp), np.array(given["prior"]), edges, bool(given["rest"]))


def _edges(given: list[float | None]) -> Array:
    return np.array([-np.inf if edge is None else edge for edge in given], dtype=np.float64)
