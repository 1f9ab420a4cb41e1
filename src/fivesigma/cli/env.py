"""``fivesigma env``: what is installed."""

from __future__ import annotations

import click

import fivesigma

_NEEDED = ("numpy", "scipy", "scikit-learn", "click", "rich")


@click.command(epilog="Example: fivesigma env")
def env() -> None:
    """Print versions of packages for a bug report.

    Those that are needed come first, then those of every extra.
    """
    import os
    import platform

    from fivesigma._tools.extras import EXTRAS, installed_version

    lines = {
        "fivesigma": fivesigma.__version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
        "cores": str(os.cpu_count()),
    }
    lines |= {name: installed_version(name) or "not installed" for name in _NEEDED}
    for extra, names in EXTRAS.items():
        lines[f"[{extra}]"] = ", ".join(f"{name} {installed_version(name) or 'not installed'}" for name in names)
    for name, text in lines.items():
        click.echo(f"{name:14}{text}")
