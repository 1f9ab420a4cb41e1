"""The whole way of the challenge at full size: 818,238 simulated events, from a server to a scored submission."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.harness import Figure, benchmark, peak_memory
from fivesigma.cli import main
from fivesigma.higgsml import engineer, load, write_simulated

FILE = "events.csv.gz"
RECIPES = ("paper-ten", "best")


@benchmark(slow=True)
def full_size() -> Iterable[Figure]:
    """Fetch, load, engineer, train two recipes, submit and score; each step in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        (here / "server").mkdir()
        write_simulated(here / "server" / FILE)
        data = str(here / FILE)
        with serving(here / "server") as url:
            fetched = measure("higgsml", "fetch", data, "--url", f"{url}/{FILE}")
        features = measure("engineer", data)
        trained, private = {}, {}
        for recipe in RECIPES:
            out = here / recipe
            trained[f"reproduce {recipe}"] = measure("higgsml", "reproduce", data, "--recipe", recipe, "-o", str(out))
            runs = json.loads((out / "results.json").read_text())["runs"]
            private[recipe] = runs[0]["blends"]["all"]["sets"]["private"]["ams"]
        scored = measure("higgsml", "score", f"{out}/submission.csv", "--data", data)
    steps = {"fetch": fetched, "load and engineer": features, **trained, "score": scored}
    for step, (seconds, _) in steps.items():
        yield Figure(step, seconds / 60, 30.0 if step in trained else None, " min")
    yield Figure("peak memory of all steps", max(memory for _, memory in steps.values()), 6000, " MB")
    for recipe, ams in private.items():
        yield Figure(f"private AMS of {recipe} on the toy", ams, note="a toy: no score of the challenge")


def measure(*arguments: str) -> tuple[float, float]:
    """Seconds and peak memory of a command in a new process."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed.higgsml", *arguments], check=True, text=True, stdout=subprocess.PIPE
    )
    return time.perf_counter() - start, float(done.stdout.splitlines()[-1])


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


if __name__ == "__main__":
    if sys.argv[1] == "engineer":
        engineer(load(sys.argv[2]))
    else:
        main(standalone_mode=False)
    print(peak_memory())
