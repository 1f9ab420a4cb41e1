"""The registry of utilities: by name, for parameters, the command line, the store and the report."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from fivesigma.errors import InputError, did_you_mean
from fivesigma.significance.paper import AMS2, AMS3, SOverRootSB
from fivesigma.significance.uncertain_background import GaussianBackground, OnOff, RelativeBackground
from fivesigma.significance.utility import Utility

# A utility that stands here has a name everywhere; its fields are b_reg and at most one number of its own.
UTILITIES: dict[str, type[Any]] = {
    "ams2": AMS2,
    "ams3": AMS3,
    "s_over_root_sb": SOverRootSB,
    "on_off": OnOff,
    "gaussian_background": GaussianBackground,
    "relative_background": RelativeBackground,
}


def own_number(kind: type[Any]) -> str | None:
    """Name of the number that a utility takes beside b_reg, if it takes one."""
    return next((field.name for field in fields(kind) if field.name != "b_reg"), None)


def describe_utilities() -> str:
    """All names with the numbers that they take, as in ``on_off(TAU)``.

    Examples
    --------
    >>> from fivesigma.significance import describe_utilities
    >>> print(describe_utilities())
    ams2, ams3, s_over_root_sb, on_off(TAU), gaussian_background(SIGMA) or relative_background(FRACTION)
    """
    numbers = {name: own_number(kind) for name, kind in UTILITIES.items()}
    *most, last = [name if number is None else f"{name}({number.upper()})" for name, number in numbers.items()]
    return f"{', '.join(most)} or {last}"


def resolve_utility(utility: str | Utility, b_reg: float | None = None) -> Utility:
    """Turn the name of a utility into the utility.

    Parameters
    ----------
    utility : str or Utility
        ``"ams2"``, ``"ams3"``, ``"s_over_root_sb"``, ``"on_off(TAU)"``, ``"gaussian_background(SIGMA)"``,
        ``"relative_background(FRACTION)"``; case, underscores and hyphens do not matter. An object is returned as is.
    b_reg : float, optional
        For a name; an object has its own.

    Examples
    --------
    >>> from fivesigma.significance import resolve_utility
    >>> resolve_utility("ams2", b_reg=10.0)
    AMS2(b_reg=10.0)
    >>> resolve_utility("on-off(3)")
    OnOff(tau=3.0, b_reg=0.0)
    """
    if isinstance(utility, Utility):
        if b_reg is not None:
            raise InputError(f"b_reg={b_reg!r} is given with {utility!r}, which has its own; give it there")
        return utility
    written, _, number = str(utility).strip().lower().removesuffix(")").partition("(")
    known = {name.replace("_", ""): name for name in UTILITIES}
    name = known.get(re.sub(r"[_\- ]", "", written))
    if name is None:
        hint = did_you_mean(written, UTILITIES) or f"; known are {', '.join(UTILITIES)}"
        raise InputError(f"no utility is called {utility!r}{hint}")
    kind, given = UTILITIES[name], {"b_reg": 0.0 if b_reg is None else b_reg}
    own = own_number(kind)
    if own is None and number:
        raise InputError(f"utility {name!r} takes no number, got {utility!r}")
    if own is not None:
        try:
            given[own] = float(number)
        except ValueError:
            raise InputError(f"utility {name!r} takes a number, as in '{name}(0.1)', got {utility!r}") from None
    resolved: Utility = kind(**given)
    return resolved
