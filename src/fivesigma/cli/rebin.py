"""``fivesigma rebin``: the best merging of the fine bins of a workspace, or of templates in a ROOT file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import fivesigma
from fivesigma.cli.options import (
    PATH,
    OutputFile,
    combine_option,
    force_option,
    goal_option,
    json_option,
    names,
    print_notes,
)


def _n_bins(_: click.Context, option: click.Parameter, text: str) -> int | dict[str, int]:
    """Read a number, or numbers by channel: SR=5,CR=2."""
    try:
        if "=" not in text:
            return int(text)
        return {name: int(number) for name, number in (part.split("=") for part in text.split(","))}
    except ValueError as err:
        raise click.BadParameter(f"{text!r} is neither a number nor CHANNEL=N,...", param=option) from err


@click.command(epilog="Example: fivesigma rebin workspace.json -k 10 -o rebinned.json --plot bins.png")
@click.argument("workspace", type=PATH)
@click.option("-k", "--bins", required=True, metavar="K", callback=_n_bins,
              help="Make this many bins of all channels together, or of each channel, such as SR=5,CR=2.")  # fmt: skip
@click.option("-o", "--output", type=OutputFile(), metavar="FILE", help="Write the new workspace (JSON) to this file.")
@click.option("--channels", type=names, metavar="NAMES",
              help="Merge bins of these channels, separated by commas; by default of all.")  # fmt: skip
@goal_option
@click.option("--min-background", type=click.FloatRange(0), default=0.0, metavar="B",
              help="Keep this expected background in each new bin.")  # fmt: skip
@click.option("--min-effective", type=click.FloatRange(0), default=10.0, metavar="N",
              help="Keep this many effective background events in each new bin, where there is a "
              "staterror.")  # fmt: skip
@click.option("--measurement", metavar="NAME", help="Take this measurement of the workspace; by default its first.")
@click.option("--signal", type=names, metavar="NAMES",
              help="Take these processes of a ROOT file of templates as signal, separated by commas.")  # fmt: skip
@click.option("--variation", default="{process}_{systematic}Up", metavar="PATTERN",
              help="Find the varied templates of a ROOT file by names of this form.")  # fmt: skip
@click.option("--smooth", is_flag=True, help="Choose the bins on templates that are averaged along the bins.")
@click.option("--plot", "picture", type=OutputFile(), metavar="FILE",
              help="Draw the fine bins and the new ones to this .png, .pdf or .svg file.")  # fmt: skip
@click.option("--report", "page", type=OutputFile(), metavar="FILE", help="Write a page (HTML) to this file.")
@combine_option
@click.option("--hepdata", type=PATH, metavar="FOLDER", help="Write a submission for HEPData to this folder.")
@click.option("--prune", type=click.FloatRange(0, 1), metavar="SHARE",
              help="Drop systematics from samples of which they change no new bin by this share.")  # fmt: skip
@json_option
@force_option
def rebin(
    workspace: Path,
    *,
    bins: int | dict[str, int],
    output: Path | None,
    picture: Path | None,
    page: Path | None,
    combine: Path | None,
    hepdata: Path | None,
    prune: float | None,
    as_json: bool,
    force: bool,
    **settings: Any,
) -> None:
    """Merge the fine bins of a workspace.

    The new bins are those with the best profiled significance. WORKSPACE is a HistFactory workspace of pyhf (JSON) or a
    ROOT file of templates. Observations are merged and do not influence the choice. The edges are printed for a
    cabinetry file: numbers of the axis, or of the fine bins.
    """
    from fivesigma.categories.review import template_notes

    found = fivesigma.rebin(workspace, bins, **settings)
    new = found.workspace
    if prune is not None:
        pruned = fivesigma.prune(new, prune)
        new = pruned.workspace
        click.echo(repr(pruned), err=True)
    print_notes(template_notes(new))
    if output is not None:
        fivesigma.write_workspace(new, output)
    if hepdata is not None:
        fivesigma.write_hepdata(new, hepdata, force=force)
    if picture is not None:
        found.save_plot(picture)
    if page is not None:
        found.report(page)
    if combine is not None:
        fivesigma.to_combine(new, combine, force=force)
    if as_json:
        what = "significance" if settings["goal"] == "discovery" else "uncertainty"
        result: dict[str, Any] = {"edges": found.edges, "binning": found.binning, what: found.figure}
        click.echo(json.dumps(result | {"before": found.before, "bound": found.bound, "gap": found.gap}))
        return
    click.echo(repr(found))
    for name, first in found.edges.items():
        click.echo(f"{name}:\n  Binning: {found.binning.get(name, first)}")
