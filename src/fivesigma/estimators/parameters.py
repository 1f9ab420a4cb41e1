"""What the parameters of an estimator may be: one line for each, checked before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Collection
from numbers import Integral
from typing import Any

from fivesigma.errors import InputError, did_you_mean, is_number

Check = Callable[[str, Any], None]
"""Called with name and value; raises if the value cannot be used."""


def whole(least: int) -> Check:
    """A whole number of at least so much."""

    def check(name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
            raise InputError(f"{name} must be an integer of at least {least}, got {value!r}")

    return check


def jobs(name: str, value: Any) -> None:
    """A number of cores as joblib has it: positive, or -1 for all, -2 for all but one, and so on."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) == 0:
        raise InputError(f"{name} must be an integer but 0, of which -1 means all cores, got {value!r}")


def flag(name: str, value: Any) -> None:
    """True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, got {value!r}")


def one_of(options: Collection[str]) -> Check:
    """One of some words."""

    def check(name: str, value: Any) -> None:
        if value not in options:
            hint = did_you_mean(str(value), options)
            raise InputError(f"{name} must be one of {', '.join(options)}, got {value!r}{hint}")

    return check


def none_or(check: Check) -> Check:
    """None, or what another check takes."""
    return lambda name, value: None if value is None else check(name, value)


def auto_or_number(name: str, value: Any) -> None:
    """The word "auto", or a number."""
    if value != "auto" and not is_number(value):
        raise InputError(f"{name} must be 'auto' or a number, got {value!r}")


def cut_rule(rules: Collection[str]) -> Check:
    """A rule that chooses a cut, or a cut on the scale of predict_proba."""

    def check(name: str, value: Any) -> None:
        if isinstance(value, str) and value not in rules:
            raise InputError(f"{name}={value!r} is not one of {', '.join(rules)}{did_you_mean(value, rules)}")
        if not isinstance(value, str) and not (is_number(value) and 0 <= value <= 1):
            raise InputError(f"{name}={value!r} is not between 0 and 1, the scale of predict_proba")

    return check
