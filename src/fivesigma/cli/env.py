"""``fivesigma env``: what is installed."""

from __future__ import annotations

import click

import fivesigma

_DISTRIBUTIONS = (
    ("numpy", ("numpy",)),
    ("scipy", ("scipy",)),
    ("scikit-learn", ("scikit-learn",)),
    ("xgboost", ("xgboost", "xgboost-cpu")),
    ("lightgbm", ("lightgbm",)),
    ("torch", ("torch",)),
    ("polars", ("polars",)),
    ("uproot", ("uproot",)),
    ("skops", ("skops",)),
    ("onnx", ("onnx",)),
    ("onnxruntime", ("onnxruntime",)),
    ("matplotlib", ("matplotlib",)),
    ("pyhf", ("pyhf",)),
)


@click.command(epilog="Example: fivesigma env")
def env() -> None:
    """Print versions, for a report of a problem."""
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    lines = {
        "fivesigma": fivesigma.__version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
        "cores": str(os.cpu_count()),
    }
    for name, candidates in _DISTRIBUTIONS:
        lines[name] = "not installed"
        for candidate in candidates:
            try:
                found = version(candidate)
            except PackageNotFoundError:
                continue
            lines[name] = found if candidate == name else f"{found} ({candidate})"
    for name, text in lines.items():
        click.echo(f"{name:14}{text}")
