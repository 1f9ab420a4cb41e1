"""The study of cascades: ``python -m benchmarks.studies.study screening|peers|confirm|scaling|all DATA [--jobs 2]``.

Each stage trains what its cache lacks, with a bar, and writes its part of benchmarks/studies/study/results.json; it
can be stopped and started again at any time. A cache belongs to one state of the settings: remove it after changing
them. The site makes its figures and tables from that file.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before numpy is read: one thread a process
    os.environ.setdefault(variable, "1")

HERE = Path(__file__).parent


def main() -> int:
    """Run a stage, or all of them."""
    from benchmarks.studies.study import stages
    from benchmarks.studies.study.data import REAL, SIMULATED

    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.study", description=__doc__)
    parser.add_argument("stage", choices=[*stages.STAGES, "all"])
    parser.add_argument("data", nargs="?", help="folder with the files of events")
    parser.add_argument("--cache", type=Path, default=HERE / "cache", help="folder of finished runs")
    parser.add_argument("--jobs", type=int, default=1, help="processes; each uses one core")
    given = parser.parse_args()
    if given.data is None or not Path(given.data).is_dir():
        print(f"{given.data or 'nothing'} is not a folder; give the folder with the files of events", file=sys.stderr)
        return 2
    absent = [name for name in (SIMULATED, REAL) if not (Path(given.data) / name).exists()]
    if absent:
        print(f"{given.data} lacks {' and '.join(absent)}", file=sys.stderr)
        return 2
    for stage in stages.STAGES if given.stage == "all" else [given.stage]:
        stages.run(stage, given.data, given.cache, given.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
