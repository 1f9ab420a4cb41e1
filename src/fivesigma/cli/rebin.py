"""``fivesigma rebin``: the best merging of the fine bins of a workspace, or of templates in a ROOT file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fivesigma.cli.options import check_output, force_option


def _n_bins(text: str) -> int | dict[str, int]:
    """Read a number, or numbers by channel: SR=5,CR=2."""
    try:
        if "=" not in text:
            return int(text)
        return {name: int(number) for name, number in (part.split("=") for part in text.split(","))}
    except ValueError as err:
        raise click.BadParameter(f"{text!r} is neither a number nor CHANNEL=N,...", param_hint="-k") from err


@click.command(epilog="Example: fivesigma rebin workspace.json -k 10 -o rebinned.json --plot bins.png")
@click.argument("workspace", type=click.Path(path_type=Path))
@click.option("-k", "--bins", required=True, metavar="K", help="Bins of all channels together, or SR=5,CR=2.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the new workspace (JSON).")
@click.option("--channels", metavar="NAMES", help="Channels to merge, with commas; by default all of several bins.")
@click.option("--goal", type=click.Choice(["discovery", "measurement"]), default="discovery", show_default=True,
              help="Largest significance, or smallest uncertainty of mu.")  # fmt: skip
@click.option("--min-background", type=click.FloatRange(0), default=0.0, show_default=True, help="In each new bin.")
@click.option("--min-effective", type=click.FloatRange(0), default=10.0, show_default=True,
              help="Effective background events in each new bin, where there is a staterror.")  # fmt: skip
@click.option("--measurement", metavar="NAME", help="Measurement of the workspace; by default its first.")
@click.option("--signal", metavar="NAMES", help="Signal processes of a ROOT file of templates, with commas.")
@click.option("--variation", default="{process}_{systematic}Up", show_default=True, metavar="PATTERN",
              help="Names of varied templates in a ROOT file.")  # fmt: skip
@click.option("--smooth", is_flag=True, help="Choose the bins on templates that are averaged along the bins.")
@click.option("--plot", "picture", type=click.Path(path_type=Path), metavar="FILE",
              help="Draw the fine bins and where they went.")  # fmt: skip
@click.option("--report", "page", type=click.Path(path_type=Path), metavar="FILE", help="Write a page (HTML).")
@click.option("--combine", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Write datacard.txt and shapes.root for combine.")  # fmt: skip
@click.option("--hepdata", type=click.Path(path_type=Path), metavar="FOLDER", help="Write a submission for HEPData.")
@click.option("--prune", type=click.FloatRange(0, 1), metavar="SHARE",
              help="Drop systematics from samples of which they change no new bin by this share.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@force_option
def rebin(
    workspace: Path,
    *,
    bins: str,
    output: Path | None,
    channels: str | None,
    goal: str,
    min_background: float,
    min_effective: float,
    measurement: str | None,
    signal: str | None,
    variation: str,
    smooth: bool,
    picture: Path | None,
    page: Path | None,
    combine: Path | None,
    hepdata: Path | None,
    prune: float | None,
    as_json: bool,
    force: bool,
) -> None:
    """Merge the fine bins of WORKSPACE so that its profiled significance is best.

    WORKSPACE is a HistFactory workspace of pyhf (JSON) or a ROOT file of templates. Observations are merged and not
    looked at. The edges are printed for a cabinetry file: numbers of the axis, or of the fine bins.
    """
    import fivesigma
    from fivesigma.categories.review import template_notes

    for path in (output, picture, page):
        if path is not None:
            check_output(path, force=force)
    found = fivesigma.rebin(
        workspace,
        _n_bins(bins),
        channels=None if channels is None else channels.split(","),
        goal=goal,
        min_background=min_background,
        min_effective=min_effective,
        measurement=measurement,
        signal=None if signal is None else signal.split(","),
        variation=variation,
        smooth=smooth,
    )
    new = found.workspace
    if prune is not None:
        pruned = fivesigma.prune(new, prune)
        new = pruned.workspace
        click.echo(repr(pruned), err=True)
    for note in template_notes(new):
        click.echo(f"note: {note}", err=True)
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
        what = "significance" if goal == "discovery" else "uncertainty"
        result: dict[str, Any] = {"edges": found.edges, "binning": found.binning, what: found.figure}
        result |= {"before": found.before, "bound": found.bound, "gap": found.gap}
        click.echo(json.dumps(result))
        return
    click.echo(repr(found))
    for name, first in found.edges.items():
        click.echo(f"{name}:\n  Binning: {found.binning.get(name, first)}")
