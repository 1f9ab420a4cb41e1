"""Templates: which events of which files each histogram of the fit is made of, as cabinetry has it."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from fivesigma.analysis.configuration import DIRECTIONS, SCORE, Analysis, Key, acts, holds, listed
from fivesigma.datasets.columns import Columns, Source
from fivesigma.datasets.expression import Expression, split_definition
from fivesigma.datasets.remote import File
from fivesigma.datasets.sources import Normalised, Target, counterparts, find_targets, normalise
from fivesigma.datasets.variations import find_variations
from fivesigma.errors import InputError

_PATHS = frozenset(("RegionPath", "SamplePath", "VariationPath"))


class Tree(NamedTuple):
    """A tree of a file, read with some branches in place of others."""

    file: File
    name: str
    replaced: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Template:
    """One histogram of the fit: a sample in a region, nominal or varied."""

    region: str
    sample: str
    systematic: str | None  # None for the nominal one
    direction: str | None
    signal: bool
    is_data: bool
    hidden: bool  # data that are not to be looked at
    norm: float  # product of the norm factors, beside the POI, at their nominal values
    files: tuple[File, ...]
    histogram: str | None = None  # where it is, if it is filled already
    tree: str = ""
    replaced: tuple[tuple[str, str], ...] = ()  # branches that another stands for
    variable: str = "0"  # expression that is histogrammed; the branch of the score in a chosen region
    condition: str = "True"  # preselection and filter
    weight: str | None = None
    factor: float = 1.0  # of the luminosity, beside the weight
    normalised: str | None = None  # how the factor was found

    @property
    def key(self) -> Key:
        """What it is called."""
        return self.region, self.sample, self.systematic, self.direction

    @property
    def trees(self) -> list[Tree]:
        """What it reads."""
        return [Tree(file, self.tree, self.replaced) for file in self.files]

    @property
    def needs_score(self) -> bool:
        """Whether it is a histogram of the score."""
        return self.variable.startswith(SCORE) and self.variable.isidentifier()

    @property
    def owner(self) -> str:
        """Who wants it, for messages."""
        varied = "" if self.systematic is None else f", systematic {self.systematic!r} {self.direction}"
        return f"sample {self.sample!r}{varied}"


def condition_of(preselection: str | None, text: str | None) -> str:
    """Preselection and filter as one expression of truths; a flag by itself becomes one.

    Examples
    --------
    >>> condition_of("passSel", "nJet == 2"), condition_of(None, None)
    ('(passSel) && (nJet == 2)', 'True')
    """
    parts = [f"({part})" for part in (preselection, text) if part is not None]
    return " && ".join([*parts, "True"][: max(2, len(parts))]) if parts else "True"


def templates_of(analysis: Analysis, *, unblind: bool = False) -> list[Template]:
    """All histograms of the fit: the same that cabinetry would make."""
    resolver, found = _Resolver(analysis, unblind=unblind), []
    for region, sample in product(analysis.regions, analysis.config["Samples"]):
        if holds(region, sample):
            found.append(resolver.template(_Place(region, sample)))
            for systematic in [] if sample.get("Data", False) else analysis.systematics:
                if systematic["Type"] == "NormPlusShape" and acts(systematic, region, sample):
                    sides = [side for side in DIRECTIONS if not systematic[side].get("Symmetrize", False)]
                    found += [resolver.template(_Place(region, sample, systematic, side)) for side in sides]
    return found


def by_tree(templates: Sequence[Template]) -> dict[File, dict[Tree, list[Template]]]:
    """Templates by the files and trees that they read."""
    found: dict[File, dict[Tree, list[Template]]] = {}
    for template in templates:
        for tree in template.trees if template.histogram is None else ():
            found.setdefault(tree.file, {}).setdefault(tree, []).append(template)
    return found


class _Place(NamedTuple):
    """A sample in a region, under one side of a systematic or not."""

    region: dict[str, Any]
    sample: dict[str, Any]
    systematic: dict[str, Any] | None = None
    direction: str = ""

    @property
    def varied(self) -> dict[str, Any]:
        """What the systematic says."""
        return {} if self.systematic is None else self.systematic[self.direction]

    @property
    def who(self) -> str:
        """Who says so, for messages."""
        if self.systematic is None:
            return f"sample {self.sample['Name']!r}"
        return f"systematic {self.systematic['Name']!r} {self.direction}"

    def get(self, key: str, usual: Any = None) -> Any:
        """What is said: by the variation, else by the sample, else by the region."""
        return next((item[key] for item in (self.varied, self.sample, self.region) if key in item), usual)


class _Resolver:
    """Finds files, trees, conditions and weights; what is looked up on disk is looked up once."""

    def __init__(self, analysis: Analysis, *, unblind: bool = False) -> None:
        self.analysis, self.unblind = analysis, unblind
        self._files: dict[tuple[str, ...], tuple[File, ...]] = {}
        self._factors: dict[tuple[str, tuple[File, ...]], Normalised] = {}

    def template(self, at: _Place) -> Template:
        name, is_data = at.region["Name"], bool(at.sample.get("Data", False))
        chosen = name in self.analysis.settings.region
        is_filled = self.analysis.is_filled(at.region)
        return Template(
            region=name,
            sample=at.sample["Name"],
            systematic=None if at.systematic is None else at.systematic["Name"],
            direction=at.direction or None,
            signal=at.sample["Name"] in self.analysis.signal,
            is_data=is_data,
            hidden=is_data and chosen and not self.unblind,
            norm=1.0 if is_data else self.analysis.norm_factor(at.region, at.sample),
            **(self.histogram(at) if is_filled else self.events(at, chosen=chosen)),
        )

    def events(self, at: _Place, *, chosen: bool) -> dict[str, Any]:
        """Of which events a histogram is made, and of what."""
        analysis, name, other = self.analysis, at.region["Name"], at.varied.get("Variable")
        replaced = replacements(other, at.who)
        variable = analysis.score_of(name) if chosen else at.region["Variable"]
        if other is not None and not replaced:
            if chosen:
                raise InputError(
                    f"{at.who} has the Variable {other!r}, but that of region {name!r} is the score: write Variable: "
                    '"branch = other_branch" to replace branches, or keep it out with Regions'
                )
            variable = other
        if variable.startswith(SCORE) and variable not in analysis.models:
            raise InputError(f"region {name!r} has the Variable {variable!r}; scores are {', '.join(analysis.models)}")
        Expression(variable, f"Variable of region {name!r}")
        for key in ("Weight", "Filter"):
            if at.get(key) is not None:
                Expression(at.get(key), f"{key} of {at.who}")
        files = self.files(at)
        found = self.normalised(at, files)
        return {
            "files": files,
            "tree": str(at.get("Tree", analysis.settings.tree)),
            "replaced": replaced,
            "variable": variable,
            "condition": condition_of(analysis.settings.preselection, at.get("Filter")),
            "weight": at.get("Weight"),
            "factor": found.factor,
            "normalised": found.sentence,
        }

    def histogram(self, at: _Place) -> dict[str, Any]:
        """A histogram that exists already, at the place where cabinetry would find it."""
        pattern = str(self.analysis.config["General"]["InputPath"])
        if at.varied and not _PATHS & at.varied.keys():
            raise InputError(
                f"{at.who} has no VariationPath, so that its histogram in region {at.region['Name']!r} would be the "
                "nominal one: give one, or keep it out with Regions"
            )
        path, colon, inside = self.paths(pattern, at)[0].rpartition(":")
        if not colon:
            raise InputError(f"the InputPath {pattern!r} must say which histogram, as in 'file.root:name'")
        return {"files": self.found((path,), at.who), "histogram": inside}

    def files(self, at: _Place) -> tuple[File, ...]:
        """Files of a template; paths are relative to the current folder, as in cabinetry."""
        pattern = self.analysis.settings.input_path or str(self.analysis.config["General"]["InputPath"])
        found = self.found(self.paths(pattern, at), at.who)
        for file in found:
            if file.suffix.lower() != ".root":
                raise InputError(f"{file} is not a ROOT file, which cabinetry reads ({at.who})")
        return found

    def paths(self, pattern: str, at: _Place) -> tuple[str, ...]:
        """Paths of a template, with the parts of region, sample and variation in place."""
        given = {key: at.get(key) for key in ("RegionPath", "SamplePath")}
        given["VariationPath"] = at.get("VariationPath", self.analysis.config["General"].get("VariationPath", ""))
        for key, value in given.items():
            if f"{{{key}}}" in pattern and value is None:
                raise InputError(
                    f"{at.who} has no {key}, which InputPath {pattern!r} needs (region {at.region['Name']!r})"
                )
            # That of a region or a sample may be meant for the histograms of the other regions.
            read = pattern if key in at.varied else pattern + str(self.analysis.config["General"]["InputPath"])
            if at.get(key) and f"{{{key}}}" not in read:
                raise InputError(
                    f"{at.who} has the {key} {at.get(key)!r} (region {at.region['Name']!r}), but InputPath {pattern!r} "
                    f"does not contain {{{key}}}, so that it would change nothing"
                )
        for key in ("RegionPath", "VariationPath"):
            pattern = pattern.replace(f"{{{key}}}", given[key] or "")
        parts = listed(given["SamplePath"]) if "{SamplePath}" in pattern else [""]
        return tuple(pattern.replace("{SamplePath}", part) for part in parts)

    def found(self, paths: tuple[str, ...], who: str) -> tuple[File, ...]:
        """Files by their paths."""
        if paths not in self._files:
            try:
                self._files[paths] = tuple(target.path for target in find_targets(paths))
            except (InputError, ValueError) as err:  # a name with a zero byte is no name
                raise InputError(f"{err} ({who})") from err
        return self._files[paths]

    def normalised(self, at: _Place, files: tuple[File, ...]) -> Normalised:
        """1000 x luminosity x cross section / sum of weights, the sum being that of these files."""
        settings, name = self.analysis.settings, at.sample["Name"]
        given = settings.cross_sections.get(name)
        if given is None:
            return Normalised(1.0)
        total = given["SumOfWeights"]
        if _PATHS & at.varied.keys() and not isinstance(total, str):
            raise InputError(
                f"{at.who} has files of its own, whose sum of weights is not the number that CrossSections gives for "
                f"{name!r}: give the name of a histogram as SumOfWeights"
            )
        if (name, files) not in self._factors:
            size = {name: given["CrossSection"]}
            asked = Columns(luminosity=settings.luminosity, cross_section=size, sum_of_weights={name: total})
            self._factors[name, files] = normalise(name, [Target(file) for file in files], asked)
        return self._factors[name, files]


def replacements(variable: str | None, who: str) -> tuple[tuple[str, str], ...]:
    """Branches and those that stand for them, of a Variable such as ``"jet_pt = jet_pt_up; mBB = mBB_up"``.

    Examples
    --------
    >>> replacements("jet_pt = jet_pt_up; mBB = mBB_up", "JES Up"), replacements("mBB_up", "JES Up")
    ((('jet_pt', 'jet_pt_up'), ('mBB', 'mBB_up')), ())
    """
    parts = [] if variable is None else [split_definition(part) for part in variable.split(";")]
    found = [part for part in parts if part is not None]
    if found and len(found) < len(parts):
        raise InputError(f"{who}: {variable!r} mixes replacements of branches with something else")
    return tuple((name, other.strip()) for name, other in found)


def found_systematics(analysis: Analysis) -> list[dict[str, Any]]:
    """Systematics that patterns of our block find among the branches of the samples, in the words of cabinetry.

    Samples whose weights or branches differ have systematics of their own, which share a modifier. A variation that
    moves no branch that the analysis uses is none.
    """
    resolver, settings, used = _Resolver(analysis), analysis.settings, _used_branches(analysis)
    found: dict[str, dict[str, tuple[list[dict[str, Any]], list[str]]]] = {}
    problems: dict[str, InputError] = {}
    seen = set()
    for sample in analysis.simulated:
        regions = [r for r in analysis.regions if holds(r, sample) and not analysis.is_filled(r)]
        for region in regions[:1]:
            file = resolver.files(_Place(region, sample))[0]
            source = Target(file).open(str(sample.get("Tree", settings.tree)))
        for pattern in settings.systematics if regions else ():
            try:
                variations = find_variations(source.names, pattern, sample.get("Weight"))
            except InputError as err:  # it may be of other samples
                problems[pattern] = err
                continue
            seen.add(pattern)
            for one in variations:
                sides = [_in_words(source, change, used) for change in (one.up, one.down)]
                if sides[0]:
                    alike = found.setdefault(one.name, {}).setdefault(repr(sides), (sides, []))
                    alike[1].append(sample["Name"])
    for pattern in (pattern for pattern in settings.systematics if pattern not in seen):
        raise problems[pattern]
    out = []
    for name, kinds in found.items():
        for k, ((up, down), samples) in enumerate(kinds.values(), start=1):
            item = {"Name": name, "Type": "NormPlusShape", "Up": up, "Down": down or {"Symmetrize": True}}
            own = {} if len(kinds) == 1 else {"Name": f"{name}_{k}", "ModifierName": name}
            out.append(item | own | {"Samples": samples})
    return out


def _in_words(source: Source, change: dict[str, Any] | None, used: Callable[[str], bool]) -> dict[str, Any]:
    """One side of a variation: a weight, or branches in place of those that are used."""
    if change is None:
        return {}
    if "weight" in change:
        return {"Weight": change["weight"]}
    pairs = [pair for pattern in change["varied"].items() for pair in counterparts(source, *pattern)]
    moved = [f"{old} = {new}" for old, new in pairs if used(old)]
    return {"Variable": "; ".join(moved)} if moved else {}


def _used_branches(analysis: Analysis) -> Callable[[str], bool]:
    """Whether a branch is a feature or in a condition, a weight or a variable."""
    config, settings = analysis.config, analysis.settings
    texts: list[Any] = [settings.preselection, settings.score]
    texts += [item.get(key) for item in (*config["Regions"], *config["Samples"]) for key in ("Filter", "Weight")]
    texts += [region.get("Variable") for region in config["Regions"]]
    texts += [(split_definition(text) or (text, text))[1] for text in settings.features]
    columns = set[str]()
    for text in (text for text in texts if text is not None):
        with suppress(InputError):  # a pattern of features; what is wrong is said where it is read
            columns |= Expression(text, "expression").columns
    return lambda name: name in columns or any(fnmatch.fnmatchcase(name, text) for text in settings.features)
