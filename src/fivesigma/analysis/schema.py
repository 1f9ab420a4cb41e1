"""The schema of what an analysis reads besides events: our block of its file, and the record of its steps."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from fivesigma._tools.extras import need
from fivesigma.errors import InputError, did_you_mean, shortened

__all__ = ["check_schema"]


def check_schema(value: Any, part: str, what: str) -> None:
    """Refuse a value that is not as ``schema.json`` says, in one sentence."""
    errors = sorted(_validator(part).iter_errors(value), key=lambda error: (len(error.absolute_path), error.message))
    if errors:
        raise InputError(_sentence(errors[0], what))


@cache
def _validator(part: str) -> Any:
    schema = json.loads((files("fivesigma.analysis") / "schema.json").read_text(encoding="utf-8"))
    return need("jsonschema").Draft7Validator(schema | {"$ref": f"#/definitions/{part}"})


def _sentence(error: Any, what: str) -> str:
    """What is wrong, by the keys that lead there."""
    path = [str(key) for key in error.absolute_path]
    where = path[-1] if path else what
    if len(path) > 1 and not path[-2].isdigit():
        where = f"{path[-1]} of {path[-2]}"
    given = shortened(repr(error.instance), 100)
    if error.validator == "additionalProperties" and error.validator_value is False:
        known = error.schema["properties"]
        unknown = next(key for key in error.instance if key not in known)
        hint = did_you_mean(str(unknown), known) or f"; known are {', '.join(known)}"
        return f"{where} has the unknown key {shortened(repr(unknown))}{hint}"
    if error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        return f"{where} needs the key {missing!r}"
    if error.validator == "enum":
        known = error.validator_value
        hint = did_you_mean(str(error.instance), known)
        return f"{where} must be one of {', '.join(known)}, got {given}{hint}"
    meant = error.schema.get("description") or (error.parent and error.parent.schema.get("description"))
    meant = meant or {"object": "a mapping of keys to values"}.get(error.schema.get("type"))
    return (
        f"{where} must be {meant}, got {given}" if meant else f"{where} is not valid: {shortened(error.message, 200)}"
    )
