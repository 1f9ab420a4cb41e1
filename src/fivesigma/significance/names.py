"""Utilities by name, for parameters and for the command line."""

from __future__ import annotations

import re

from fivesigma.errors import InputError, did_you_mean
from fivesigma.significance.paper import AMS2, AMS3, SOverRootSB
from fivesigma.significance.uncertain_background import GaussianBackground, OnOff, RelativeBackground
from fivesigma.significance.utility import Utility

# The name and, for those that have one, the number they take.
_PLAIN: dict[str, type[AMS2 | AMS3 | SOverRootSB]] = {"ams2": AMS2, "ams3": AMS3, "s_over_root_sb": SOverRootSB}
_WITH_NUMBER: dict[str, type[OnOff | GaussianBackground | RelativeBackground]] = {
    "on_off": OnOff,
    "gaussian_background": GaussianBackground,
    "relative_background": RelativeBackground,
}
_KNOWN = {name.replace("_", ""): name for name in [*_PLAIN, *_WITH_NUMBER]}


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
            raise InputError(f"b_reg={b_reg!r} stands beside {utility!r}, which has its own; give it there")
        return utility
    b_reg = 0.0 if b_reg is None else b_reg
    written, _, number = str(utility).strip().lower().removesuffix(")").partition("(")
    name = _KNOWN.get(re.sub(r"[_\- ]", "", written))
    if name is None:
        hint = did_you_mean(written, _KNOWN.values()) or f"; known are {', '.join(_KNOWN.values())}"
        raise InputError(f"no utility is called {utility!r}{hint}")
    if name in _PLAIN:
        if number:
            raise InputError(f"utility {name!r} takes no number, got {utility!r}")
        return _PLAIN[name](b_reg=b_reg)
    try:
        return _WITH_NUMBER[name](float(number), b_reg=b_reg)
    except InputError:
        raise
    except ValueError:
        raise InputError(f"utility {name!r} takes a number, as in '{name}(0.1)', got {utility!r}") from None
