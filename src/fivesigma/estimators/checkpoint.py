"""Checkpoints: a run that was killed goes on where it last wrote."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from fivesigma.errors import InputError

_NAME = "checkpoint.json"
_FORMAT = 1


def fingerprint(estimator: Any, *data: Any) -> dict[str, str]:
    """Hashes of what a run depends on: its settings and its events."""
    ignored = ("checkpoint", "checkpoint_every", "verbose", "n_jobs")
    settings = {k: repr(v) for k, v in sorted(estimator.get_params(deep=True).items()) if k not in ignored}
    settings["class"] = type(estimator).__name__
    return {
        "settings": hashlib.sha256(json.dumps(settings).encode()).hexdigest(),
        "events": joblib.hash(data, hash_name="sha1"),
    }


class Checkpoint:
    """A folder that holds the state of a run: one small JSON file that names the others.

    Files are written under new names; then the JSON file is replaced in one step. So at any moment the folder holds
    a whole state, the old one or the new one.
    """

    def __init__(self, folder: str | os.PathLike[str], run: Mapping[str, str], interval: int) -> None:
        self.folder = Path(folder)
        self.lock = threading.Lock()
        self._run = {**run, "interval": str(interval)}

    @classmethod
    def of(cls, estimator: Any, interval: int, *data: Any) -> Checkpoint | None:
        """Make the checkpoint that an estimator asks for, if it does."""
        if estimator.checkpoint is None:
            return None
        if not isinstance(estimator.random_state, (int, np.integer)):
            raise InputError(
                "a checkpoint needs an integer random_state, or a resumed run could not go on the same way"
            )
        return cls(estimator.checkpoint, fingerprint(estimator, *data), interval)

    def read(self) -> tuple[dict[str, Any], dict[str, bytes]] | None:
        """Return state and files as last written, or None if there are none."""
        path = self.folder / _NAME
        if not path.exists():
            return None
        try:
            manifest = json.loads(path.read_text())
            files = {name: (self.folder / entry["file"]).read_bytes() for name, entry in manifest["files"].items()}
            run, state, version = manifest["run"], manifest["state"], manifest["format"]
            sums = {name: entry["sha256"] for name, entry in manifest["files"].items()}
        except (OSError, ValueError, KeyError, TypeError) as err:
            raise InputError(f"{path} cannot be read ({err}); remove the folder to start anew") from err
        if version != _FORMAT:
            raise InputError(f"{path} has format {version!r} and this version reads {_FORMAT}; remove the folder")
        for part, what in (
            ("settings", "of another configuration"),
            ("events", "of other events"),
            ("interval", "of another interval"),
        ):
            if run.get(part) != self._run[part]:
                raise InputError(f"the checkpoint in {self.folder} is {what}; give another folder or remove it")
        for name, content in files.items():
            if hashlib.sha256(content).hexdigest() != sums[name]:
                raise InputError(
                    f"{name} in {self.folder} does not match its checksum; remove the folder to start anew"
                )
        return state, files

    def write(self, state: dict[str, Any], files: Mapping[str, bytes]) -> None:
        """Replace the state in one step."""
        self.folder.mkdir(parents=True, exist_ok=True)
        entries = {}
        for name, content in files.items():
            digest = hashlib.sha256(content).hexdigest()
            entries[name] = {"file": f"{name}.{digest[:16]}", "sha256": digest}
            write_atomically(self.folder / entries[name]["file"], content)
        manifest = {"format": _FORMAT, "run": self._run, "state": state, "files": entries}
        write_atomically(self.folder / _NAME, json.dumps(manifest).encode())
        current = {entry["file"] for entry in entries.values()} | {_NAME}
        for path in self.folder.iterdir():
            if path.name not in current and path.name.partition(".")[0] in {n.partition(".")[0] for n in files}:
                path.unlink()

    def say_interrupted(self, reached: int, kept: int, unit: str) -> None:
        """Tell an interrupted user what is left of the run."""
        print(
            f"interrupted after {unit} {reached}; the same call goes on from {unit} {kept}, kept in {self.folder}",
            file=sys.stderr,
        )


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside, then rename."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    with beside.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(path)
