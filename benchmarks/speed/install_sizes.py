"""What an install costs on disk: ``python -m benchmarks.speed.install_sizes [EXTRA ...]`` prints a table.

Each row is a fresh environment with the core and one extra. The size is that of site-packages without pip.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def megabytes(folder: Path) -> float:
    """Size of all files in a folder, in units of 10^6 bytes."""
    return sum(p.lstat().st_size for p in folder.rglob("*") if not p.is_dir()) / 1e6


def installed_size(extra: str) -> float:
    """Install the core, and `extra` if it is not empty, into an environment of its own; return its size in MB."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "bin", "python")
        target = f"{ROOT}[{extra}]" if extra else str(ROOT)
        options = ["--quiet", "--no-cache-dir", "--no-compile", "--disable-pip-version-check"]
        subprocess.run([python, "-m", "pip", "install", *options, target], check=True)
        subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", "pip"], check=True)
        (packages,) = Path(folder, "lib").glob("python*/site-packages")
        return megabytes(packages)


def main(extras: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = installed_size("")
    print("| extra | MB | with the core |\n|---|---|---|", flush=True)
    print(f"| (core) | {core:.0f} | {core:.0f} |", flush=True)
    for extra in extras or project["optional-dependencies"]:
        size = installed_size(extra)
        print(f"| `{extra}` | {size - core:.0f} | {size:.0f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
