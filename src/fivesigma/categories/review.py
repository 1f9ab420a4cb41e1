"""What reviewers of a workspace ask for: effects without effect dropped, odd templates named, files for HEPData."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import explained, write_text
from fivesigma._tools.summary import Shown, Summary
from fivesigma._types import Array
from fivesigma.errors import InputError, is_number

_BOTH_SIDES = 1e-3  # of a bin: what moves less to the same side is not said


class Dropped(NamedTuple):
    """An effect that is too small: the largest relative change of a bin of its sample."""

    channel: str
    sample: str
    systematic: str
    kind: str
    largest: float


@dataclass(frozen=True, repr=False, eq=False)
class Pruned(Shown):
    """A workspace without effects that are too small.

    Attributes
    ----------
    workspace : dict
    dropped : tuple of Dropped
        Channel, sample, systematic, kind of modifier, and the largest relative change of a bin.
    threshold : float

    Examples
    --------
    >>> import fivesigma
    >>> fivesigma.prune({"channels": []}).dropped
    ()
    """

    workspace: dict[str, Any]
    dropped: tuple[Dropped, ...]
    threshold: float

    def _summary(self) -> Summary:
        return Summary(
            f"Pruned: {len(self.dropped)} effects below {self.threshold:g} of every bin were dropped",
            ("channel", "sample", "systematic", "modifier", "largest"),
            [(*row[:4], f"{row.largest:.2g}") for row in self.dropped],
        )


def prune(workspace: Mapping[str, Any], threshold: float = 0.005) -> Pruned:
    """Drop systematics from the samples that they hardly move.

    A ``histosys`` or ``normsys`` is dropped from a sample of a channel if it changes no bin by the threshold or more.
    Other samples keep it, so that each is judged by itself.

    Parameters
    ----------
    workspace : dict
        Of pyhf.
    threshold : float, default=0.005
        Smallest relative change that is kept.

    Returns
    -------
    Pruned

    Examples
    --------
    >>> import fivesigma
    >>> small = {"name": "small", "type": "normsys", "data": {"hi": 1.001, "lo": 0.999}}
    >>> sample = {"name": "top", "data": [10.0], "modifiers": [small]}
    >>> found = fivesigma.prune({"channels": [{"name": "SR", "samples": [sample]}]})
    >>> found.dropped[0].systematic, found.workspace["channels"][0]["samples"][0]["modifiers"]
    ('small', [])
    """
    if not (is_number(threshold) and 0 <= threshold < 1):
        raise InputError(f"the threshold of pruning must be a number from 0 to 1, got {threshold!r}")
    dropped: list[Dropped] = []

    def without(channel: Mapping[str, Any], sample: Mapping[str, Any]) -> dict[str, Any]:
        kept = []
        for modifier in sample["modifiers"]:
            size = _largest(np.asarray(sample["data"], dtype=np.float64), modifier)
            if size is None or size >= threshold:
                kept.append(modifier)
            else:
                dropped.append(Dropped(channel["name"], sample["name"], modifier["name"], modifier["type"], size))
        return {**sample, "modifiers": kept}

    channels = [{**c, "samples": [without(c, sample) for sample in c["samples"]]} for c in workspace["channels"]]
    left = {m["name"] for channel in channels for sample in channel["samples"] for m in sample["modifiers"]}
    gone = {row.systematic for row in dropped} - left
    measurements = []
    for entry in workspace.get("measurements", ()):
        parameters = [p for p in entry["config"].get("parameters", ()) if p["name"] not in gone]
        measurements.append({**entry, "config": {**entry["config"], "parameters": parameters}})
    out = {**workspace, "channels": channels}
    return Pruned(out | ({"measurements": measurements} if measurements else {}), tuple(dropped), float(threshold))


def _largest(nominal: Array, modifier: Mapping[str, Any]) -> float | None:
    """Largest relative change of a bin; None for modifiers that have none."""
    data = modifier["data"]
    if modifier["type"] == "normsys":
        return float(max(abs(data["hi"] - 1), abs(data["lo"] - 1)))
    if modifier["type"] != "histosys":
        return None
    moved = np.abs(np.array([data["hi_data"], data["lo_data"]]) - nominal)
    # What moves a bin without events moves it by more than any share.
    share = np.divide(moved, np.abs(nominal), out=np.where(moved > 0, np.inf, 0.0), where=nominal != 0)
    return float(share.max(initial=0.0))


def template_notes(workspace: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for each template with errors above its content, one-sided variations or empty varied bins."""
    out: list[str] = []
    for channel in workspace["channels"]:
        for sample in channel["samples"]:
            out += _notes(f"{channel['name']}/{sample['name']}", sample)
    return tuple(out)


def _notes(place: str, sample: Mapping[str, Any]) -> Iterator[str]:
    nominal = np.asarray(sample["data"], dtype=np.float64)
    for modifier in sample["modifiers"]:
        name, data = modifier["name"], modifier["data"]
        if modifier["type"] == "staterror":
            errors = np.asarray(data, dtype=np.float64)
            if (wide := np.flatnonzero(errors > np.maximum(nominal, 0.0))).size:
                k = wide[0]
                yield (
                    f"{place} has errors above its content in {wide.size} of {nominal.size} bins, {nominal[k]:.3g} +- "
                    f"{errors[k]:.3g} in bin {k}: merge bins, or simulate more"
                )
        elif modifier["type"] == "histosys":
            high, low = (np.asarray(data[side], dtype=np.float64) for side in ("hi_data", "lo_data"))
            empty = np.flatnonzero((nominal > 0) & (np.minimum(high, low) <= 0))
            if empty.size:
                yield f"{place}: {name!r} up or down leaves {empty.size} bins empty, bin {empty[0]} first"
            up, down = high - nominal, low - nominal
            least = np.minimum(np.abs(up), np.abs(down))
            sided = np.flatnonzero((up * down > 0) & (least > _BOTH_SIDES * np.abs(nominal)))
            if sided.size:
                yield (
                    f"{place}: {name!r} moves {sided.size} of {nominal.size} bins to the same side up and down, bin "
                    f"{sided[0]} first; a fit may have two minima"
                )


def write_hepdata(workspace: Mapping[str, Any], folder: str | Path, *, comment: str = "", force: bool = False) -> Path:
    """Write a submission folder for HEPData: a table of yields for each channel, and the workspace.

    Tables have the expected events of each sample with the errors of the simulation (staterror), and the observed ones.
    The files are YAML of HEPData's format, written without `hepdata_lib`, which rounds numbers and packs its files into
    the current folder; it can read them.

    Parameters
    ----------
    workspace : dict
        Of pyhf, such as from `to_pyhf` or `rebin`.
    folder : path
        Where to write; it is made if it is not there.
    comment : str, optional
        What the submission is about.
    force : bool, default=False
        Whether to replace a submission that is there.

    Returns
    -------
    pathlib.Path
        ``submission.yaml``.

    Examples
    --------
    >>> import tempfile
    >>> import fivesigma
    >>> channel = {"name": "SR", "samples": [{"name": "top", "data": [10.0], "modifiers": []}]}
    >>> workspace = {"channels": [channel], "observations": [{"name": "SR", "data": [9.0]}]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fivesigma.write_hepdata(workspace, folder).name
    'submission.yaml'
    """
    yaml, folder = need("yaml"), Path(folder)
    target = folder / "submission.yaml"
    if target.exists() and not force:
        raise InputError(f"{folder} holds a submission already; choose another folder, or pass force=True or --force")
    with explained(folder, "written"):
        folder.mkdir(exist_ok=True)
    resource = {"location": "workspace.json", "description": "HistFactory workspace for pyhf", "type": "HistFactory"}
    documents: list[dict[str, Any]] = [
        {"comment": comment or "Expected and observed events", "additional_resources": [resource]}
    ]
    files: dict[str, str] = {"workspace.json": json.dumps(workspace, indent=2, allow_nan=False) + "\n"}
    observed = {entry["name"]: entry["data"] for entry in workspace["observations"]}
    for channel in workspace["channels"]:
        name = channel["name"]
        file = f"yields_{re.sub(r'[^A-Za-z0-9_-]', '_', name)}.yaml"
        table = {
            "independent_variables": [
                {"header": {"name": "bin"}, "values": [{"value": k} for k in range(len(observed[name]))]}
            ],
            "dependent_variables": [
                *(_variable(sample["name"], sample["data"], sample["modifiers"]) for sample in channel["samples"]),
                _variable("observed", observed[name], ()),
            ],
        }
        files[file] = yaml.safe_dump(table, sort_keys=False)
        documents.append({
            "name": f"Yields of {name}"[:64],
            "description": f"Expected events of each process in the bins of {name}, and observed ones.",
            "keywords": [{"name": "observables", "values": ["N"]}],
            "data_file": file,
        })  # fmt: skip
    files[target.name] = yaml.safe_dump_all(documents, sort_keys=False)
    for file, text in files.items():
        write_text(folder / file, text)
    return target


def _variable(name: str, values: Any, modifiers: Any) -> dict[str, Any]:
    errors = next((m["data"] for m in modifiers if m["type"] == "staterror"), None)
    rows: list[dict[str, Any]] = [{"value": float(value)} for value in values]
    if errors is not None:
        rows = [
            row | {"errors": [{"symerror": float(error), "label": "simulation"}]}
            for row, error in zip(rows, errors, strict=True)
        ]
    return {"header": {"name": name, "units": "events"}, "values": rows}
