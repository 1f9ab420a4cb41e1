from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from fivesigma import AMS2, AMS3, GaussianBackground, OnOff, RelativeBackground, SOverRootSB, Utility
from fivesigma._types import Array
from fivesigma.errors import InputError
from fivesigma.significance import UTILITIES, resolve_utility


@pytest.mark.parametrize(
    ("name", "utility"),
    [
        ("ams2", AMS2()),
        ("AMS3", AMS3()),
        ("ams-2", AMS2()),
        ("s_over_root_sb", SOverRootSB()),
        ("SOverRootSB", SOverRootSB()),
        ("on_off(2.5)", OnOff(2.5)),
        ("OnOff(3)", OnOff(3.0)),
        ("gaussian_background(1e1)", GaussianBackground(10.0)),
        (" relative-background( 0.1 ) ", RelativeBackground(0.1)),
    ],
)
def test_names(name: str, utility: Utility) -> None:
    assert resolve_utility(name) == utility
    assert resolve_utility(name, b_reg=10.0) == type(utility)(**{**vars(utility), "b_reg": 10.0})


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("ams1", "no utility is called 'ams1'; did you mean 'ams3' or 'ams2'?"),
        ("gaussian(3)", "no utility is called 'gaussian(3)'; did you mean 'gaussian_background'?"),
        ("xyz", "no utility is called 'xyz'; known are ams2, ams3, s_over_root_sb, on_off,"),
        ("ams2(3)", "utility 'ams2' takes no number, got 'ams2(3)'"),
        ("on_off", "utility 'on_off' takes a number, as in 'on_off(0.1)', got 'on_off'"),
        ("on_off(many)", "utility 'on_off' takes a number, as in 'on_off(0.1)', got 'on_off(many)'"),
        ("on_off(-1)", "OnOff: tau must be a finite number >= 0, got -1.0"),
        ("relative_background(nan)", "RelativeBackground: fraction must be a finite number >= 0, got nan"),
    ],
)
def test_wrong_names_are_answered(name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        resolve_utility(name)


def test_an_object_is_itself_and_has_its_own_b_reg() -> None:
    utility = AMS2(b_reg=3.0)
    assert resolve_utility(utility) is utility
    with pytest.raises(InputError, match=re.escape("b_reg=1.0 is given with AMS2(b_reg=3.0)")):
        resolve_utility(utility, b_reg=1.0)


@dataclass(frozen=True)
class _Third(AMS3):
    """A utility that somebody adds: a class, and a line in the registry."""

    label: ClassVar[str] = "third of s/√b"

    def _objective(self, s: Array, b: Array) -> Array:
        return super()._objective(s, b) / 9


def test_a_new_utility_needs_its_class_and_a_line_in_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from fivesigma.cli import main
    from fivesigma.reporting.cuts import usual_utilities, utility_label
    from fivesigma.store import load_value, save_value

    monkeypatch.setitem(UTILITIES, "third", _Third)
    utility = resolve_utility("third", b_reg=2.0)
    assert utility == _Third(b_reg=2.0)
    assert float(utility.value(9.0, 7.0)) == 1.0
    assert "relative_background(FRACTION) or third." in " ".join(
        CliRunner().invoke(main, ["scan", "--help"]).output.split()
    )
    assert utility in usual_utilities(2.0, 100.0)
    assert utility_label(utility) == "third of s/√b (b_reg = 2)"
    save_value({"utility": utility}, tmp_path / "saved")
    assert load_value(tmp_path / "saved")["utility"] == utility
